// SPDX-License-Identifier: Apache-2.0
// In deterministic mode a run is a function of its config, even if it is repeated, resumed or
// interrupted by a crash.
#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::SizeIs;

const std::vector<std::string> kOverrides = {"run.steps=10", "run.deterministic=true",
                                             "checkpoint.every=4", "replay.fraction=0.25",
                                             "services.lease_seconds=3"};

std::vector<double> UninterruptedLosses() {
  TrainingRun run(kOverrides);
  EXPECT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  return run.Series("train/loss");
}

double Sum(const TrainingRun& run, const char* key) {
  double total = 0;
  for (const double value : run.Series(key)) total += value;
  return total;
}

// `whole` is a run of the recipe that has ended.
void ExpectTheSameAfterACrashAndOnTwoRanks(TrainingRun& whole, std::vector<std::string> overrides,
                                           const std::string& recipe) {
  const std::vector<double> expected = whole.Series("train/loss");
  TrainingRun killed(overrides, {}, recipe);
  ASSERT_TRUE(killed.WaitForStep(6)) << killed.process().error_output();
  ASSERT_TRUE(killed.KillChild("learner", SIGKILL));
  ASSERT_EQ(killed.WaitExit().value(), 0) << killed.process().error_output();
  EXPECT_THAT(killed.Series("train/loss"), ElementsAreArray(expected));
  EXPECT_TRUE(killed.FinalWeights() == whole.FinalWeights()) << "other bytes";

  overrides.push_back("learner.ranks=2");
  TrainingRun ranks(overrides, {}, recipe);
  ASSERT_EQ(ranks.WaitExit().value(), 0) << ranks.process().error_output();
  EXPECT_THAT(ranks.Series("train/loss"), ElementsAreArray(expected));
  EXPECT_TRUE(ranks.FinalWeights() == whole.FinalWeights()) << "other bytes";
}

// Promise: Any one process may die, again and again.
// Promise: Resume continues from the checkpoint. Weights, optimiser, average, version, prompt order
// and replay content are the checkpoint's. A deterministic run whose learner is killed has the
// losses of a run whose learner was not. If the newest checkpoint is damaged in any byte of any
// file, the one before is used. A power loss at any moment leaves the newest finished checkpoint or
// one that was being written, every step that the step log has acknowledged, and no part of a file
// that passes for a whole one. A checkpoint that is skipped is said on the terminal. An upgrade
// does not change which configs fit. Other training prompts, and another model, are refused by
// name. A checkpoint that was written while the buffer was away brings back what the buffer still
// has of the steps before it.
TEST(DeterminismTest, KillingTheLearnerChangesNoLoss) {
  const std::vector<double> expected = UninterruptedLosses();
  ASSERT_THAT(expected, SizeIs(10));

  TrainingRun killed(kOverrides);
  ASSERT_TRUE(killed.WaitForStep(6)) << killed.process().error_output();
  ASSERT_TRUE(killed.KillChild("learner", SIGKILL));
  ASSERT_EQ(killed.WaitExit().value(), 0) << killed.process().error_output();
  EXPECT_THAT(killed.Series("train/loss"), ElementsAreArray(expected));
}

// Draws, commits and workers' reads wait for the buffer, which the supervisor starts again.
// Promise: No plan waits for stored latents.
// Promise: Any one process may die, again and again. After kill -9 of a worker, a reward server (of
// two), the replay buffer or the learner, a run under `oxbow train` ends well, with every step. A
// worker, reward server or shard that dies at every start, whatever its exit code, never ends a run
// in which another of its kind lives; its pauses grow to ten minutes. Passing trouble of the only
// one of a kind (a full disk, a peer that is away, a crash) ends a run after
// `services.patience_minutes` without a committed step, however long it lives; trouble that the
// same start would meet again ends it at once. A deterministic run waits for its replay buffer, for
// `services.rpc_timeout_seconds` at most, and has the same losses and weights whichever of them
// dies. Its name changes nothing. Without replay a run has no buffer.
TEST(DeterminismTest, KillingTheReplayBufferChangesNoLoss) {
  TrainingRun whole(kOverrides);
  ASSERT_EQ(whole.WaitExit().value(), 0) << whole.process().error_output();
  const std::vector<double> expected = whole.Series("train/loss");
  ASSERT_THAT(expected, SizeIs(10));
  EXPECT_GT(Sum(whole, "train/groups_replayed"), 0) << "or this test shows nothing";

  TrainingRun killed(kOverrides);
  for (const int step : {2, 5}) {
    ASSERT_TRUE(killed.WaitForStep(step)) << killed.process().error_output();
    ASSERT_TRUE(killed.KillChild("replay_buffer", SIGKILL)) << step;
  }
  ASSERT_EQ(killed.WaitExit().value(), 0) << killed.process().error_output();
  EXPECT_THAT(killed.Series("train/loss"), ElementsAreArray(expected));
  EXPECT_THAT(killed.Series("train/groups_replayed"),
              ElementsAreArray(whole.Series("train/groups_replayed")));
  EXPECT_TRUE(killed.FinalWeights() == whole.FinalWeights()) << "other bytes";
}

// Ids of groups and entries, and so their draws, follow from seed, step and group.
// Promise: Any one process may die, again and again.
TEST(DeterminismTest, ARunsNameChangesNothing) {
  TrainingRun run(kOverrides);
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_GT(Sum(run, "train/groups_replayed"), 0) << "or this test shows nothing";

  std::vector<std::string> overrides = kOverrides;
  overrides.push_back("run.name=nur");  // As long as "run", so the two files have one layout.
  TrainingRun renamed(overrides);
  ASSERT_EQ(renamed.WaitExit().value(), 0) << renamed.process().error_output();
  const RunFiles other(renamed.directory().parent_path() / "nur");
  ASSERT_THAT(other.Series("train/loss"), SizeIs(10));
  EXPECT_THAT(other.Series("train/loss"), ElementsAreArray(run.Series("train/loss")));
  std::string weights = other.FinalWeights();
  const size_t name = weights.find("\"nur\"");
  ASSERT_NE(name, std::string::npos) << "a file of weights names its run";
  EXPECT_TRUE(weights.replace(name, 5, "\"run\"") == run.FinalWeights()) << "other bytes";
}

// Its tables are those of the checkpoint: the same prompts are sampled again, the same groups
// reused.
TEST(DeterminismTest, KillingTheLearnerOfAnAdaptedRunChangesNoLoss) {
  const std::vector<std::string> overrides = {"run.steps=10",
                                              "run.deterministic=true",
                                              "checkpoint.every=4",
                                              "adaptation.enabled=true",
                                              "adaptation.again_every=2",
                                              "adaptation.again_max=3",
                                              "adaptation.hard_max=0.4",
                                              "adaptation.reuse_max=0.9",
                                              "services.lease_seconds=3"};
  TrainingRun whole(overrides);
  ASSERT_EQ(whole.WaitExit().value(), 0) << whole.process().error_output();
  const std::vector<double> expected = whole.Series("train/loss");
  ASSERT_THAT(expected, SizeIs(10));
  EXPECT_GT(Sum(whole, "adaptation/hard_again"), 0);
  EXPECT_GT(Sum(whole, "adaptation/groups_reused"), 0);

  TrainingRun killed(overrides);
  ASSERT_TRUE(killed.WaitForStep(6)) << killed.process().error_output();
  ASSERT_TRUE(killed.KillChild("learner", SIGKILL));
  ASSERT_EQ(killed.WaitExit().value(), 0) << killed.process().error_output();
  EXPECT_THAT(killed.Series("train/loss"), ElementsAreArray(expected));
}

// Trees, pruned by width and by depth: all of it is a function of the step.
// Promise: Trees share steps and change no bit.
TEST(DeterminismTest, KillingTheLearnerOfARunOfTreesChangesNoLoss) {
  const std::vector<std::string> overrides = {"run.steps=10",
                                              "run.deterministic=true",
                                              "checkpoint.every=4",
                                              "method.branch.fusion=softmax",
                                              "method.branch.pruning=extremes",
                                              "method.branch.pruned_steps=[4]",
                                              "method.branch.pruned_hold=3",
                                              "services.lease_seconds=3"};
  TrainingRun whole(overrides, {}, "digits-branch-grpo");
  ASSERT_EQ(whole.WaitExit().value(), 0) << whole.process().error_output();
  ASSERT_THAT(whole.Series("train/loss"), SizeIs(10));
  for (const double rows : whole.Series("rollout/rows_forward")) {
    EXPECT_EQ(rows, 4 * (1 + 2 + 4 + 7 * 8)) << "a row for each node";
  }

  ExpectTheSameAfterACrashAndOnTwoRanks(whole, overrides, "digits-branch-grpo");
}

// A window that moves with compressed steps behind it, draws by variance, passes over what is
// replayed, two pulls, and reincarnation after the crash: all follow from step, groups, buffer and
// weights of the checkpoint.
// Promise: An end of reuse is an end.
TEST(DeterminismTest, KillingTheLearnerOfACompressedRunOfReMixChangesNoLoss) {
  const std::vector<std::string> overrides = {
      "run.steps=10",
      "eval.every=0",
      "run.deterministic=true",
      "checkpoint.every=4",
      "services.lease_seconds=3",
      "batch.groups=8",
      "sampling.sde_count=8",
      "sampling.window={kind: progressive, size: 3, hold: 2}",
      "sampling.compression={share: 0.6, carry: true}",
      "method.kept_kc_max=1e9",
      "method.kl_weight=1e-2",
      "method.kl_precedent=0.5",
      "replay.fraction=0.5",
      "replay.draw=varied",
      "replay.passes=3",
      "replay.reincarnate_after=7"};
  TrainingRun whole(overrides, {}, "digits-op-grpo");
  ASSERT_EQ(whole.WaitExit().value(), 0) << whole.process().error_output();
  ASSERT_THAT(whole.Series("train/loss"), SizeIs(10));
  const std::vector<double> replayed = whole.Series("train/groups_replayed");
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(replayed[i] > 0, i >= 1 && i < 7) << i;
  const std::vector<double> precedent = whole.Series("train/kl_precedent_div");
  EXPECT_GT(precedent[5], 0);

  ExpectTheSameAfterACrashAndOnTwoRanks(whole, overrides, "digits-op-grpo");
}

// Heads of the whole window come back with the picture that is stored. Which ones do is counted by
// the buffer, whose state the crash leaves as it was.
// Promise: Any one process may die, again and again.
TEST(DeterminismTest, KillingTheLearnerOfARunWithStoredPicturesChangesNoLoss) {
  const std::vector<std::string> overrides = {"run.steps=10",         "run.deterministic=true",
                                              "checkpoint.every=4",   "services.lease_seconds=3",
                                              "replay.fraction=0.5",  "replay.draw=best",
                                              "replay.max_uses=2",    "replay.capacity=8",
                                              "sampling.tail=stored", "method.kept_kc_max=1e9",
                                              "method.weight_cap=1"};
  TrainingRun whole(overrides, {}, "digits-op-grpo");
  ASSERT_EQ(whole.WaitExit().value(), 0) << whole.process().error_output();
  ASSERT_THAT(whole.Series("train/loss"), SizeIs(10));
  EXPECT_GT(Sum(whole, "train/groups_replayed"), 0) << "or this test shows nothing";

  ExpectTheSameAfterACrashAndOnTwoRanks(whole, overrides, "digits-op-grpo");
}

// Need and rate of success are part of the checkpoint; what joins a step follows from the buffer's.
// Promise: Reuse beyond a drawn head keeps its bounds.
// Promise: Chosen prompts follow from the seed.
TEST(DeterminismTest, KillingTheLearnerOfARunWithEveryFormOfReuseChangesNoLoss) {
  std::vector<std::string> overrides = ReuseOverrides();
  overrides.insert(overrides.end(),
                   {"run.deterministic=true", "checkpoint.every=4", "services.lease_seconds=3"});
  TrainingRun whole(overrides);
  ASSERT_EQ(whole.WaitExit().value(), 0) << whole.process().error_output();
  const std::vector<double> expected = whole.Series("train/loss");
  ASSERT_THAT(expected, SizeIs(10));
  EXPECT_GT(Sum(whole, "train/groups_bound_late"), 0);
  EXPECT_GT(Sum(whole, "train/added_samples"), 0);
  EXPECT_GT(Sum(whole, "train/groups_replayed"), Sum(whole, "train/groups_bound_late"));

  TrainingRun killed(overrides);
  ASSERT_TRUE(killed.WaitForStep(6)) << killed.process().error_output();
  ASSERT_TRUE(killed.KillChild("learner", SIGKILL));
  ASSERT_EQ(killed.WaitExit().value(), 0) << killed.process().error_output();
  EXPECT_THAT(killed.Series("train/loss"), ElementsAreArray(expected));
  EXPECT_THAT(killed.Series("buffer/need"), ElementsAreArray(whole.Series("buffer/need")));
}

// Promise: A run can go back.
TEST(DeterminismTest, ARunThatWasRolledBackEndsAsIfItHadNotGoneOn) {
  std::vector<std::string> overrides = kOverrides;
  overrides.insert(overrides.end(), {"checkpoint.keep=9"});
  TrainingRun run(overrides);
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> expected = run.Series("train/loss");
  const std::string weights = run.FinalWeights();

  const std::string directory = run.directory().string();
  EXPECT_EQ(RunOxbow({"rollback", directory, "--to", "5"}).exit_code, 4) << "no such checkpoint";
  const Outcome back = RunOxbow({"rollback", directory, "--to", "4"});
  ASSERT_EQ(back.exit_code, 0) << back.message;
  run.Resume(overrides);
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), ElementsAreArray(expected));
  EXPECT_TRUE(run.FinalWeights() == weights) << "other bytes";
}

// Promise: The worker that samples does not matter. The number of workers, the other groups in a
// batch, attempts and deaths change no bit of a group and no loss of a deterministic run.
// Promise: Any one process may die, again and again.
TEST(DeterminismTest, WorkerCountAndDeathsChangeNoLoss) {
  const std::vector<double> expected = UninterruptedLosses();
  std::vector<std::string> overrides = kOverrides;
  overrides.insert(overrides.end(), {"services.rollout_workers=2", "services.groups_in_flight=3"});
  TrainingRun run(overrides);
  ASSERT_TRUE(run.WaitForStep(3)) << run.process().error_output();
  ASSERT_TRUE(run.KillChild("rollout_worker", SIGKILL));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), ElementsAreArray(expected));
}

}  // namespace
}  // namespace oxbow::testing
