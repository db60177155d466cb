// SPDX-License-Identifier: Apache-2.0
// Faults of a process begin, hold it, and end; damage of a checkpoint is seen by its reader.
#include "tests/chaos/process_faults.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "tests/chaos/checkpoint_damage.h"
#include "tests/chaos/preloaded_number.h"
#include "tests/testing/process.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::chaos {
namespace {

using ::testing::HasSubstr;

// The soft limit of open files.
rlim_t LimitOf(pid_t process) {
  rlimit limit{};
  EXPECT_EQ(prlimit(process, RLIMIT_NOFILE, nullptr, &limit), 0);
  return limit.rlim_cur;
}

TEST(ProcessFaultsTest, DescriptorsEndAtTheLowestFreeNumberUntilTheyAreBack) {
  const auto child = testing::Process::Start({.argv = {"/bin/sleep", "100"}}).value();
  const rlim_t before = LimitOf(child->pid());
  const absl::StatusOr<TakeBack> taken = TakeDescriptors(child->pid());
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_LT(LimitOf(child->pid()), before);
  ASSERT_TRUE((*taken)().ok());
  EXPECT_EQ(LimitOf(child->pid()), before);
}

std::string StateOf(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("State:")) return line;
  }
  return "gone";
}

TEST(ProcessFaultsTest, AThreadHangsAndAKilledProcessIsLeftToItsParent) {
  const auto parent =
      testing::Process::Start({.argv = {"/bin/sh", "-c", "sleep 100 & echo PID $!; wait"}}).value();
  const std::string line = parent->WaitForLine("PID", absl::Seconds(20)).value();
  const pid_t child = std::stoi(line.substr(4));
  absl::StatusOr<TakeBack> hangs;
  while (absl::IsNotFound(hangs.status()) || absl::IsUnknown(hangs.status())) {
    hangs = HangThread(child, "sleep");  // A shell at first.
  }
  ASSERT_TRUE(hangs.ok()) << hangs.status();
  EXPECT_THAT(StateOf(child), HasSubstr("tracing stop"));
  kill(child, SIGKILL);
  ASSERT_TRUE((*hangs)().ok());
  EXPECT_EQ(parent->WaitExit(absl::Seconds(20)).value(), 0) << "it has seen the end of its child";
}

TEST(ProcessFaultsTest, AProcessHasTheWallClockThatIsSet) {
  if (kPreloaded[0] == '\0') GTEST_SKIP() << "not in this build";
  const testing::ScopedDirectory scratch;
  const auto clock =
      PreloadedNumber::Make(kPreloaded, kClockAhead, scratch.path() / "clock").value();
  const auto now = [&] {
    const auto date = testing::Process::Start(
        {.argv = {"/bin/date", "+%s"}, .environment = clock->environment()});
    EXPECT_EQ((*date)->WaitExit(absl::Seconds(20)).value(), 0);
    return std::atoll((*date)->output().c_str());
  };
  const auto before = now();
  clock->Set(5 * 3600);
  EXPECT_NEAR(static_cast<double>(now() - before), 5 * 3600, 60);
  clock->Set(-5 * 3600);
  EXPECT_NEAR(static_cast<double>(now() - before), -5 * 3600, 60);
}

TEST(ProcessFaultsTest, AProcessHasTheSlowDiskThatIsSet) {
  if (kPreloaded[0] == '\0') GTEST_SKIP() << "not in this build";
  const testing::ScopedDirectory scratch;
  const auto delay = PreloadedNumber::Make(kPreloaded, kSyncDelay, scratch.path() / "sync").value();
  const auto took = [&] {
    const absl::Duration began = Clock::Steady().Now();
    const auto sync = testing::Process::Start(
        {.argv = {"/bin/sync", scratch.path() / "sync"}, .environment = delay->environment()});
    EXPECT_EQ((*sync)->WaitExit(absl::Seconds(20)).value(), 0);
    return Clock::Steady().Now() - began;
  };
  delay->Set(500);
  EXPECT_GE(took(), absl::Milliseconds(500));
  delay->Set(0);
  took();
}

TEST(ProcessFaultsTest, MemoryEndsALittleAboveWhatIsUsedUntilItIsBack) {
  const auto child = testing::Process::Start({.argv = {"/bin/sleep", "100"}}).value();
  const absl::StatusOr<TakeBack> taken = TakeMemory(child->pid());
  ASSERT_TRUE(taken.ok()) << taken.status();
  rlimit limit{};
  ASSERT_EQ(prlimit(child->pid(), RLIMIT_DATA, nullptr, &limit), 0);
  EXPECT_LT(limit.rlim_cur, rlim_t{256} << 20);
  ASSERT_TRUE((*taken)().ok());
  ASSERT_EQ(prlimit(child->pid(), RLIMIT_DATA, nullptr, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, RLIM_INFINITY);
}

class CheckpointDamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const uint64_t steps : {3, 6}) {
      const auto written =
          store_.Write({.committed_steps = steps},
                       {{"weights.safetensors",
                         [](const learner::WritePiece& write) { return write("some weights"); }}});
      ASSERT_TRUE(written.ok()) << written.status();
    }
  }
  uint64_t Loaded() const { return store_.LoadNewest()->state.committed_steps; }

  const testing::ScopedDirectory scratch_;
  const learner::CheckpointStore store_{scratch_.path(), /*keep=*/2};
};

TEST_F(CheckpointDamageTest, AFlippedBitOfManifestOrWeightsCostsTheNewest) {
  for (const bool odd : {false, true}) {
    EXPECT_EQ(FlipBit(scratch_.path(), odd).value(), 6u);
    EXPECT_EQ(Loaded(), 3u);
    FlipBit(scratch_.path(), odd).value();  // Back again.
    EXPECT_EQ(Loaded(), 6u);
  }
}

TEST_F(CheckpointDamageTest, AFileOver4GibCostsTheNewest) {
  EXPECT_EQ(GrowBeyond4Gib(scratch_.path()).value(), 6u);
  EXPECT_EQ(Loaded(), 3u);
  SetAside(scratch_.path(), 6);
  EXPECT_EQ(GrowBeyond4Gib(scratch_.path()).value(), 3u);
  EXPECT_TRUE(absl::IsDataLoss(store_.LoadNewest().status()));
}

}  // namespace
}  // namespace oxbow::chaos
