// SPDX-License-Identifier: Apache-2.0
// A run that ends before its last step says so with an exit code of its own, whoever asked it to,
// and loses no step by it.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"
#include "tests/launchers/expected_run.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

nlohmann::json EndedOf(const fs::path& run_dir) {
  return nlohmann::json::parse(ReadFile(run_dir / "ended.json").value_or(""), nullptr, false);
}

// How often each step was trained.
std::map<uint64_t, int> TimesTrained(const fs::path& run_dir) {
  std::map<uint64_t, int> times;
  std::ifstream file(run_dir / "steps.jsonl");
  for (std::string line; std::getline(file, line);) {
    ++times[nlohmann::json::parse(line)["step"].get<uint64_t>()];
  }
  return times;
}

bool HasCheckpoint(const fs::path& run_dir, size_t step) {
  return fs::exists(run_dir / "checkpoints" / absl::StrFormat("step_%06d", step) / "manifest.json");
}

// Whether the process has come so far that it takes its stop signals itself.
bool AwaitOwnSignals(pid_t pid) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (absl::Now() < deadline) {
    std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
    for (std::string line; std::getline(status, line);) {
      if (!absl::StartsWith(line, "SigBlk:")) continue;
      const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
      if ((blocked >> (SIGTERM - 1)) & 1) return true;
    }
    std::this_thread::yield();
  }
  return false;
}

class LearnerSignalTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, LearnerSignalTest, ::testing::Values(SIGTERM, SIGUSR1, SIGUSR2));

// Nobody has told `oxbow train`.
// Promise: Drained is not done. A learner that ends before its last step ends with exit code 9, and
// 8 where a rule has ended it; all its ranks do, `ended.json` says so, and `oxbow train` prints it
// and passes it on. Every rank hears SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 at every moment:
// one that serves asks rank 0, and no step is lost; one that loads or waits for the others ends at
// once.
TEST_P(LearnerSignalTest, ADrainedLearnerIsNoDoneOne) {
  TrainingRun run({"run.steps=500", "checkpoint.every=0"});
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  ASSERT_TRUE(run.KillChild("learner", GetParam()));
  ASSERT_EQ(run.WaitExit().value(), kExitDrained) << run.process().error_output();
  const size_t committed = run.Series("train/loss").size();
  EXPECT_THAT(run.process().output(),
              AllOf(HasSubstr(absl::StrCat("drained at step ", committed, " of 500 by SIG",
                                           sigabbrev_np(GetParam()), "; go on with: ")),
                    HasSubstr("oxbow resume")));
  EXPECT_EQ(EndedOf(run.directory()),
            nlohmann::json({{"state", "interrupted"},
                            {"step", committed},
                            {"exit_code", kExitDrained},
                            {"reason", absl::StrCat("drained by SIG", sigabbrev_np(GetParam()))},
                            {"time", EndedOf(run.directory()).value("time", "")}}));
  EXPECT_TRUE(HasCheckpoint(run.directory(), committed));
}

// weights/ tell of a checkpoint: a start without one would write over them.
// Promise: Nobody loses a run.
TEST(EndedEarlyTest, ARunThatDrainsBeforeItsFirstStepHasNoWeightsAndBeginsAgain) {
  TrainingRun run({"run.steps=500", "checkpoint.every=0", "batch.groups=128"});
  ASSERT_TRUE(run.WaitForStep(0)) << run.process().error_output();
  ASSERT_TRUE(run.KillChild("learner", SIGTERM));
  ASSERT_EQ(run.WaitExit().value(), kExitDrained) << run.process().error_output();
  const uint64_t committed = EndedOf(run.directory()).value("step", uint64_t{0});
  EXPECT_EQ(std::filesystem::exists(run.directory() / "weights"), committed > 0);
  run.Resume(
      {"run.steps=" + std::to_string(committed + 1), "checkpoint.every=0", "batch.groups=128"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_TRUE(std::filesystem::exists(run.directory() / "weights"));
}

// Promise: Drained is not done.
TEST(EndedEarlyTest, ASignalToAnotherRankLosesNoStep) {
  const std::vector<std::string> settings = {"checkpoint.every=0", "learner.ranks=2",
                                             "learner.rank_timeout_seconds=20"};
  std::vector<std::string> first = settings;
  first.emplace_back("run.steps=500");
  TrainingRun run(first);
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  const std::vector<pid_t> others =
      ChildrenNamed(ChildrenNamed(run.process().pid(), "learner").at(0), "learner");
  ASSERT_THAT(others, SizeIs(1));
  ASSERT_EQ(kill(others[0], SIGTERM), 0);
  ASSERT_EQ(run.WaitExit().value(), kExitDrained) << run.process().error_output();
  EXPECT_THAT(run.process().output(), HasSubstr(" by SIGTERM at learner rank 1; go on"));
  const size_t committed = run.Series("train/loss").size();
  EXPECT_TRUE(HasCheckpoint(run.directory(), committed));

  std::vector<std::string> second = settings;
  second.push_back(absl::StrCat("run.steps=", committed + 2));
  run.Resume(second);
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::map<uint64_t, int> times = TimesTrained(run.directory());
  EXPECT_THAT(times, SizeIs(committed + 2));
  for (const auto& [step, count] : times) EXPECT_EQ(count, 1) << "step " << step;
}

std::vector<std::string> Rank(int rank, int port) {
  return {absl::StrCat("MASTER_ADDR=127.0.0.1"), absl::StrCat("MASTER_PORT=", port), "WORLD_SIZE=2",
          absl::StrCat("RANK=", rank), absl::StrCat("LOCAL_RANK=", rank)};
}

// As an eviction tells them: all pods, or one of them.
// Promise: A launcher may start the ranks.
TEST(EndedEarlyTest, AllRanksEndWithTheCodeAndTheNextStartChangesNoBit) {
  LaunchedRun run(SmallDeterministicRun());
  int port = FreePort();
  Process& leader = run.Launch({.environment = Rank(0, port)});
  Process& member = run.Launch({.environment = Rank(1, port)});
  run.Work(leader);
  ASSERT_TRUE(run.WaitForStep(3));
  member.Kill(SIGTERM);
  ASSERT_THAT(run.WaitExit(), Each(kExitDrained));
  const size_t committed = run.files().Series("train/loss").size();
  EXPECT_TRUE(HasCheckpoint(run.files().directory(), committed));
  EXPECT_EQ(EndedOf(run.files().directory())["exit_code"], kExitDrained);
  port = FreePort();
  run.Launch({.environment = Rank(0, port)});
  run.Launch({.environment = Rank(1, port)});
  EXPECT_THAT(run.WaitExit(), Each(0));
  ExpectTheSameBits(run);
}

TEST(EndedEarlyTest, ASignalWhileTheRanksWaitForEachOtherEndsThemAtOnce) {
  LaunchedRun run({"run.steps=4", "learner.rank_timeout_seconds=60"});
  for (const int rank : {0, 1}) {
    Process& alone = run.Launch({.environment = Rank(rank, FreePort())});
    ASSERT_TRUE(AwaitOwnSignals(alone.pid()));
    const absl::Time sent = absl::Now();
    alone.Kill(SIGTERM);
    EXPECT_THAT(run.WaitExit(), ElementsAre(kExitDrained)) << rank;
    EXPECT_LT(absl::Now() - sent, absl::Seconds(30)) << "of 600 s";
  }
}

// Promise: A rule ends a run as its last step would.
TEST(EndedEarlyTest, ARuleEndsALearnerThatWasStartedByHandAsItEndsARun) {
  LaunchedRun run(
      {"run.steps=50", "run.stop_if=[{metric: train/reward_mean, above: -1, after_step: 2}]"});
  Process& learner = run.Launch({});
  run.Work(learner);
  ASSERT_THAT(run.WaitExit(), ElementsAre(kExitStopped));
  EXPECT_EQ(EndedOf(run.files().directory())["exit_code"], kExitStopped);
  EXPECT_THAT(run.files().Series("train/loss"), SizeIs(3));
}

}  // namespace
}  // namespace oxbow::testing
