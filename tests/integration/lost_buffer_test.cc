// SPDX-License-Identifier: Apache-2.0
// The case of a replay buffer that is away at the wrong moment, or is another run's.
#include <signal.h>

#include <cstdlib>
#include <map>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/buffer/replay_client.h"
#include "tests/launchers/launched_run.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kCheckpoint = 30;  // Learner steps between two.

// Entries and the steps of their births.
std::map<uint64_t, uint64_t> Entries(const LaunchedRun& run) {
  buffer::ReplayClient client(run.buffer(), absl::Seconds(20));
  const auto listed = client.List("");
  EXPECT_TRUE(listed.ok()) << listed.status();
  std::map<uint64_t, uint64_t> births;
  if (!listed.ok()) return births;
  for (const v1::ReplayEntry& entry : *listed) births[entry.entry_id()] = entry.birth_step();
  return births;
}

// Waits for a row of metrics.jsonl from `step` on that says that the buffer answers, or does not.
bool AwaitAttached(LaunchedRun& run, int64_t step, double attached) {
  for (; step < 400; ++step) {
    if (!run.WaitForStep(step)) return false;
    if (run.files().metrics().back().value("buffer/attached", -1.0) == attached) return true;
  }
  return false;
}

std::vector<std::string> LongRun() {
  return {"run.steps=100000", "checkpoint.every=" + std::to_string(kCheckpoint),
          "replay.fraction=0.25", "services.rpc_timeout_seconds=5"};
}

// The learner writes a checkpoint while the buffer is away. The buffer comes back and takes what
// waited. Then the learner dies: it goes back to the checkpoint that names no buffer content.
// Promise: Resume continues from the checkpoint.
TEST(LostBufferTest, ACheckpointWithoutTheBufferDoesNotEmptyItAtTheNextStart) {
  LaunchedRun run(LongRun());
  Process& learner = run.Launch({});
  run.Work(learner);
  ASSERT_TRUE(run.WaitForStep(2)) << learner.error_output();
  run.KillBuffer();
  ASSERT_TRUE(run.WaitForStep(kCheckpoint + 1)) << learner.error_output();
  run.StartBuffer();
  ASSERT_TRUE(AwaitAttached(run, kCheckpoint + 1, 1)) << learner.error_output();
  run.StopWork();
  ASSERT_TRUE(run.KillRank(-1));
  EXPECT_THAT(run.WaitExit(), ::testing::Each(-SIGKILL));

  std::map<uint64_t, uint64_t> expected = Entries(run);
  ASSERT_THAT(expected, ::testing::Not(IsEmpty()));
  ASSERT_LT(run.files().metrics().back()["step"].get<uint64_t>(), 2 * kCheckpoint)
      << "no later checkpoint, or this test shows nothing";
  std::erase_if(expected, [](const auto& entry) { return entry.second >= kCheckpoint; });
  ASSERT_THAT(expected, ::testing::Not(IsEmpty()));
  Process& resumed = run.Launch({});  // Without a worker: nothing new is offered.
  ASSERT_TRUE(resumed.WaitForLine("READY name=learner ", absl::Seconds(60)).ok())
      << resumed.error_output();
  EXPECT_EQ(Entries(run), expected);
}

// The buffer stays, the run directory is deleted: another run, which must not mix with the first.
// Promise: A buffer belongs to one run.
TEST(LostBufferTest, ABufferOfAnotherRunIsRefusedAtTheStartUntilItIsTaken) {
  LaunchedRun run(LongRun());
  Process& first = run.Launch({});
  run.Work(first);
  ASSERT_TRUE(run.WaitForStep(2)) << first.error_output();
  run.StopWork();
  ASSERT_TRUE(run.KillRank(-1));
  EXPECT_THAT(run.WaitExit(), SizeIs(1));
  const std::map<uint64_t, uint64_t> entries = Entries(run);
  ASSERT_THAT(entries, ::testing::Not(IsEmpty()));
  buffer::ReplayClient client(run.buffer(), absl::Seconds(20));
  const std::string owner = client.Info()->run_uid();
  EXPECT_THAT(owner, ::testing::StartsWith("run-"));
  for (const auto& child : fs::directory_iterator(run.files().directory())) {
    if (child.path().filename() != "config.resolved.yaml") fs::remove_all(child.path());
  }

  Process& second = run.Launch({});
  ASSERT_EQ(second.WaitExit(absl::Seconds(60)).value(), 2) << second.error_output();
  const std::string error = second.error_output();
  const std::string line = error.substr(error.rfind('\n', error.size() - 2) + 1);
  EXPECT_THAT(line, HasSubstr("belongs to run " + owner + ", not to run run-")) << error;
  EXPECT_THAT(line, HasSubstr("--take-buffer " + owner));
  EXPECT_EQ(Entries(run), entries);

  Process& taking = run.Launch({.after = {"--take-buffer", owner}});
  ASSERT_TRUE(taking.WaitForLine("READY name=learner ", absl::Seconds(60)).ok())
      << taking.error_output();
  EXPECT_THAT(Entries(run), IsEmpty());
  EXPECT_NE(client.Info()->run_uid(), owner);
}

// The disk of the run is lost, again and again; copies of its checkpoints and its buffer are not.
// Promise: A copy of a checkpoint never ends a run.
TEST(LostBufferTest, ARunThatGoesOnFromACopyKeepsItsBuffer) {
  const ScopedDirectory second;
  std::vector<std::string> settings = LongRun();
  settings.push_back("checkpoint.copy_to=" + second.path().string());
  LaunchedRun run(settings);
  const auto work_until = [&](int64_t step) {
    Process& learner = run.Launch({});
    run.Work(learner);
    return run.WaitForStep(step);
  };
  ASSERT_TRUE(work_until(2));
  buffer::ReplayClient client(run.buffer(), absl::Seconds(20));
  const std::string uid = client.Info()->run_uid();
  const fs::path copies = second.path() / uid;
  const fs::path directory = run.files().directory();
  int64_t reached = 0;
  for (int lost = 0; lost < 2; ++lost) {
    // A drain writes a checkpoint and waits for its copy.
    run.launched().Kill(SIGTERM);
    EXPECT_THAT(run.WaitExit(), SizeIs(1));
    run.StopWork();
    const std::map<uint64_t, uint64_t> entries = Entries(run);
    ASSERT_THAT(entries, ::testing::Not(IsEmpty()));
    reached = run.files().metrics().back()["step"];
    // Starts after that checkpoint, which only the buffer knows of.
    for (int start = 0; start < 2; ++start) {
      Process& learner = run.Launch({});
      ASSERT_TRUE(learner.WaitForLine("READY name=learner ", absl::Seconds(60)).ok())
          << learner.error_output();
      ASSERT_TRUE(run.KillRank(-1));
      EXPECT_THAT(run.WaitExit(), SizeIs(1));
    }
    for (const auto& child : fs::directory_iterator(directory)) {
      if (child.path().filename() != "config.resolved.yaml") fs::remove_all(child.path());
    }
    Process& refused = run.Launch({});
    ASSERT_EQ(refused.WaitExit(absl::Seconds(60)).value(), 2) << refused.error_output();
    const std::string error = refused.error_output();
    EXPECT_THAT(run.WaitExit(), SizeIs(1));
    EXPECT_THAT(error, HasSubstr("up to step " + std::to_string(reached)));
    const size_t begin = error.rfind("mkdir -p ");
    ASSERT_NE(begin, error.npos);
    const std::string restore = error.substr(begin, error.find(", then resume") - begin);
    ASSERT_EQ(std::system(restore.c_str()), 0) << restore;

    Process& resumed = run.Launch({});
    ASSERT_TRUE(resumed.WaitForLine("READY name=learner ", absl::Seconds(60)).ok())
        << resumed.error_output();
    EXPECT_EQ(Entries(run), entries);
    EXPECT_EQ(client.Info()->run_uid(), uid);
    run.Work(resumed);
    ASSERT_TRUE(run.WaitForStep(reached + 1)) << resumed.error_output();
  }
}

// Two learners of one run: the older one ends for good instead of training on.
// Promise: A buffer belongs to one run.
TEST(LostBufferTest, ALearnerThatANewerStartHasFencedEnds) {
  LaunchedRun run(LongRun());
  Process& older = run.Launch({});
  run.Work(older);
  ASSERT_TRUE(run.WaitForStep(2)) << older.error_output();
  buffer::ReplayClient reader(run.buffer(), absl::Seconds(20));
  const std::string uid = reader.Info()->run_uid();
  buffer::ReplayClient newer(run.buffer(), absl::Seconds(20), uid);
  ASSERT_TRUE(newer.Restore(Epoch(7), "", {.step = LearnerStep(1)}).ok());
  EXPECT_EQ(older.WaitExit(absl::Seconds(60)).value(), 2) << older.error_output();
  EXPECT_THAT(older.error_output(), HasSubstr("is fenced by start 7"));
}

}  // namespace
}  // namespace oxbow::testing
