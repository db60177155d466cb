// SPDX-License-Identifier: Apache-2.0
// Any one process may die at any time; the run goes on or restarts by itself.
#include <signal.h>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "run/endpoints_file.h"
#include "services/buffer/replay_store.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class CrashTest : public ::testing::TestWithParam<const char*> {};

// Promise: Any one process may die, again and again.
TEST_P(CrashTest, TheRunFinishesAfterAKill) {
  constexpr int kSteps = 14;
  TrainingRun run({"run.steps=" + std::to_string(kSteps), "checkpoint.every=4",
                   "services.lease_seconds=3", "services.reward_servers=2",
                   "replay.fraction=0.25"});
  ASSERT_TRUE(run.WaitForStep(3)) << run.process().error_output();
  ASSERT_TRUE(run.KillChild(GetParam(), SIGKILL));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), SizeIs(kSteps));
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), Each(0.0));
}

INSTANTIATE_TEST_SUITE_P(Processes, CrashTest,
                         ::testing::Values("rollout_worker", "reward_server", "replay_buffer",
                                           "learner"));

TEST(CrashLoopTest, AWorkerThatDiesAtEveryStartEndsNothingAndIsInTheStatus) {
  TrainingRun run({"run.steps=100000", "services.rollout_workers=2", "services.lease_seconds=3"});
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  const std::string directory = run.directory().string();
  const absl::Time give_up = absl::Now() + kRunDeadline;
  std::string said;
  while (said.find("rollout_worker-1 was ended by signal 9, 4 times in a row") == said.npos) {
    ASSERT_LT(absl::Now(), give_up) << said;
    run.KillChild("rollout_worker", SIGKILL, "rollout_worker-1");
    said = RunOxbow({"status", "--run", directory}).output;
  }
  const auto reached = static_cast<int64_t>(run.metrics().back()["step"]);
  EXPECT_TRUE(run.WaitForStep(reached + 2)) << "the other one samples";
  run.process().Kill(SIGINT);
  EXPECT_EQ(run.WaitExit().value(), 130) << run.process().error_output();
  EXPECT_THAT(run.process().error_output(), HasSubstr("child ended and is started again"));
}

// One of two shards dies, twice: the run has heads of the other meanwhile, and loses nothing.
TEST(ShardCrashTest, TheRunFinishesAfterAShardWasKilled) {
  constexpr int kSteps = 14;
  TrainingRun run({"run.steps=" + std::to_string(kSteps), "checkpoint.every=4",
                   "services.replay_shards=2", "replay.fraction=0.25"});
  const std::vector<std::filesystem::path> shards = run::ReplayDirectories(run.directory(), 2);
  ASSERT_TRUE(run.WaitForStep(3)) << run.process().error_output();
  ASSERT_TRUE(run.KillChild("replay_buffer", SIGKILL, shards[1].string()));
  ASSERT_TRUE(run.WaitForStep(7)) << run.process().error_output();
  ASSERT_TRUE(run.KillChild("replay_buffer", SIGKILL, shards[0].string()));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), SizeIs(kSteps));
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), Each(0.0));
  // Every entry is on the shard of its prompt, and sound.
  for (uint64_t shard = 0; shard < 2; ++shard) {
    const auto store = buffer::ReplayStore::OpenForReading(shards[shard], replay::Decay());
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->Info().owner.shards, 2u);
    EXPECT_EQ((*store)->Info().step, LearnerStep(kSteps));
    const std::vector<buffer::Entry> entries = (*store)->List(1000, EntryId(0)).value();
    EXPECT_FALSE(entries.empty());
    for (const buffer::Entry& entry : entries) {
      EXPECT_EQ(entry.prompt.value % 2, shard);
      EXPECT_TRUE((*store)->ReadLatents(entry.id, 0, entry.latent_count).ok());
    }
  }
}

}  // namespace
}  // namespace oxbow::testing
