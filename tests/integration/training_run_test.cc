// SPDX-License-Identifier: Apache-2.0
// The files that a run leaves, and what must hold in each of its steps.
#include "tests/integration/training_run.h"

#include <signal.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/evaluation_file.h"
#include "tests/integration/oxbow_command.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

std::string Content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// The events of a run that was started once.
std::string EventsOf(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      return Content(entry.path());
    }
  }
  return "";
}

// Pictures, sheet and report have the size of the evaluation; training does not change.
TEST(TrainingRunTest, AnEvaluationMayHaveASizeOfItsOwn) {
  const std::vector<std::string> overrides = {
      "run.steps=2", "eval.every=1", "run.deterministic=true",
      "reward.terms=[{name: brightness, weight: 1}]", "reward.observed=[]"};
  TrainingRun own(overrides);
  ASSERT_EQ(own.WaitExit().value(), 0) << own.process().error_output();
  std::vector<std::string> larger = overrides;
  larger.insert(larger.end(), {"eval.height=16", "eval.width=16"});
  TrainingRun other(larger);
  ASSERT_EQ(other.WaitExit().value(), 0) << other.process().error_output();
  EXPECT_EQ(own.Series("train/loss"), other.Series("train/loss"));
  EXPECT_NE(own.Series("eval/reward_mean"), other.Series("eval/reward_mean"));
  const auto pictures =
      io::ReadEvaluation(other.directory() / "samples" / "step_000002" / io::kEvaluationFile);
  ASSERT_TRUE(pictures.ok()) << pictures.status();
  EXPECT_THAT(*pictures, SizeIs(16));
  for (const io::EvaluatedPicture& picture : *pictures) {
    EXPECT_EQ(picture.width, 16);
    EXPECT_EQ(picture.height, 16);
  }
  EXPECT_TRUE(std::filesystem::exists(other.directory() / "report.html"));

  // A reward that takes one size only is found before the first step.
  TrainingRun refused({"run.steps=2", "eval.every=1", "eval.height=16"});
  EXPECT_NE(refused.WaitExit().value(), 0);
  EXPECT_THAT(refused.process().error_output(), HasSubstr("pictures of eval.height"));
}

// Promise: The on-policy ratio is exactly 1.
TEST(TrainingRunTest, LeavesMetricsReportWeightsAndCheckpoints) {
  TrainingRun run({"run.steps=6", "checkpoint.every=3", "eval.every=6"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();

  EXPECT_THAT(run.Series("train/loss"), SizeIs(6));
  EXPECT_THAT(run.Series("train/clip_frac_total"), SizeIs(6));
  EXPECT_THAT(run.Series("buffer/size"), SizeIs(6));
  // The first step has no entries to replay.
  EXPECT_THAT(run.Series("train/iw_ess"), SizeIs(5));
  EXPECT_THAT(run.Series("buffer/staleness_mean"), SizeIs(5));
  // Exactly zero, not small: worker and learner computed the same bits, over the wire and through
  // the buffer.
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), AllOf(SizeIs(6), Each(0.0)));
  EXPECT_GT(run.Series("buffer/size").back(), 0);
  EXPECT_TRUE(run.metrics().back().contains("eval/reward_mean"));
  EXPECT_TRUE(run.metrics().back().contains("eval/reward_digits_strict_mean"));

  const std::string report = Content(run.directory() / "report.html");
  EXPECT_THAT(report, HasSubstr("<svg"));
  EXPECT_THAT(report, HasSubstr("data:image/png;base64,"));
  EXPECT_EQ(report.find("src=\"http"), std::string::npos)
      << "the report must open without a network";
  const std::string events = EventsOf(run.directory());
  EXPECT_THAT(events, HasSubstr("train/loss"));
  EXPECT_THAT(events, HasSubstr("```yaml\nrun:\n  name: run\n")) << "the resolved config";
  EXPECT_THAT(events, HasSubstr("\n  groups: 4\n"));
  EXPECT_THAT(events, HasSubstr("_hparams_/session_start_info"));
  EXPECT_TRUE(std::filesystem::exists(run.directory() / "config.resolved.yaml"));
  EXPECT_TRUE(std::filesystem::exists(run.directory() / "checkpoints" / "step_000006"));
  EXPECT_TRUE(std::filesystem::exists(run.directory() / "weights"));
}

TEST(TrainingRunTest, EveryStepSaysWhatItCostAndHowAlikeItsImagesAre) {
  TrainingRun run({"run.steps=3", "replay.fraction=0", "sampling.steps=7", "sampling.sde_count=4",
                   "batch.updates=1"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> samples = run.Series("train/samples");
  const std::vector<double> sampled = run.Series("rollout/rows_forward");
  const std::vector<double> trained = run.Series("train/samples_trained");
  const std::vector<double> backward = run.Series("train/rows_backward");
  ASSERT_THAT(sampled, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sampled[i], 7 * samples[i]);
    EXPECT_EQ(backward[i], 4 * trained[i]);
  }
  // Equal numbers have one name.
  EXPECT_THAT(run.Series("rollout/staleness_max"), AllOf(SizeIs(3), Each(0.0)));
  EXPECT_THAT(run.Series("train/staleness_max"), SizeIs(0));
  EXPECT_THAT(run.Series("rollout/samples"), SizeIs(0));
  EXPECT_THAT(run.Series("train/group_distance_mean"), Each(AllOf(Gt(0.0), Le(1.0))));
  EXPECT_THAT(run.Series("train/duplicate_share_mean"), Each(AllOf(Gt(0.0), Le(1.0))));
}

// Steps behind the window are compressed: 5, of which two stay as one, behind a window of two. What
// a mixed group samples begins where its head ends.
// Promise: Compressed steps change no trained transition.
TEST(TrainingRunTest, TheCostOfSamplingIsThatOfTheStepsThatWereTaken) {
  TrainingRun run({"run.steps=6", "replay.fraction=0.5", "sampling.steps=8", "sampling.sde_count=3",
                   "sampling.compression.share=0.5", "method.kept_steps=2"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> samples = run.Series("train/samples");
  const std::vector<double> sampled = run.Series("rollout/rows_forward");
  const std::vector<double> replayed = run.Series("train/groups_replayed");
  ASSERT_THAT(sampled, SizeIs(6));
  EXPECT_GT(*std::max_element(replayed.begin(), replayed.end()), 0);
  // Behind step 2 are 5 steps, 6 levels, of which 3 stay. A tail has 6 steps, 7 levels: 3.
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(sampled[i], (samples[i] - replayed[i]) * (3 + 2) + replayed[i] * 2) << i;
  }
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), Each(0.0));
}

TEST(TrainingRunTest, ARunThatReplaysNothingHasNoBuffer) {
  TrainingRun run({"run.steps=2", "replay.fraction=0", "eval.every=0"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(Content(run.directory() / "endpoints.json"), Not(HasSubstr("replay_buffer")));
  EXPECT_FALSE(std::filesystem::exists(run.directory() / "replay"));
  EXPECT_FALSE(std::filesystem::exists(run.directory() / "logs" / "replay_buffer.log"));
  const Outcome list = RunOxbow({"replay", "list", "--run", run.directory().string()});
  EXPECT_EQ(list.exit_code, 4);
  EXPECT_THAT(list.message, HasSubstr("this run keeps no replay, its replay.fraction is 0"));
}

TEST(TrainingRunTest, ReplayedHeadsAreCorrectedAndFreshOnesAreNot) {
  TrainingRun run({"run.steps=8", "replay.fraction=0.5", "optimizer.learning_rate=1e-3"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> ess = run.Series("train/iw_ess");
  EXPECT_GT(*std::max_element(ess.begin(), ess.end()), 0) << "no replayed sample was trained on";
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), Each(0.0));
}

// The buffer returns the same image: its reward is unchanged.
TEST(TrainingRunTest, MethodsWithoutDensityReplayWholeImages) {
  TrainingRun run({"run.steps=6", "replay.fraction=0.5"}, {}, "digits-awm");
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> replayed = run.Series("train/groups_replayed");
  EXPECT_GT(*std::max_element(replayed.begin(), replayed.end()), 0);
  EXPECT_THAT(run.Series("train/replay_reward_change"), AllOf(SizeIs(Ge(3u)), Each(0.0)));
  EXPECT_THAT(run.Series("train/clip_frac_replay"), SizeIs(Ge(3u)));
  EXPECT_GT(run.Series("buffer/reuse_mean").back(), 0);
  // Ten network steps for every fresh image; none for replayed ones.
  const std::vector<double> rows = run.Series("rollout/rows_forward");
  const std::vector<double> samples = run.Series("train/samples");
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i], 10 * (samples[i] - replayed[i])) << "step " << i + 1;
  }
}

// Promise: Staleness is bounded.
TEST(TrainingRunTest, DelayedWeightsStayWithinTheStalenessBudget) {
  TrainingRun run({"run.steps=8", "off_policy.publish_every=2", "off_policy.staleness_max=2"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> staleness = run.Series("rollout/staleness_max");
  ASSERT_THAT(staleness, SizeIs(8));
  EXPECT_LE(*std::max_element(staleness.begin(), staleness.end()), 2);
  EXPECT_GT(*std::max_element(staleness.begin(), staleness.end()), 0);
  EXPECT_THAT(run.Series("rollout/batches"), Each(Ge(1.0)));
  EXPECT_THAT(run.Series("rollout/sample_s"), Each(Gt(0.0)));
}

// AdamW divides by its epsilon where the gradients are smaller: said once, at the first such step.
TEST(TrainingRunTest, AnEpsilonAboveTheGradientsIsAWarning) {
  TrainingRun run({"run.steps=3", "replay.fraction=0", "optimizer.epsilon=10"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  ASSERT_THAT(run.Series("train/grad_rms"), AllOf(SizeIs(3), Each(Gt(0.0))));
  constexpr std::string_view kWarning = "optimizer.epsilon exceeds the gradients";
  const std::string log = Content(run.directory() / "logs/learner.log");
  const size_t said = log.find(kWarning);
  ASSERT_NE(said, std::string::npos) << log;
  EXPECT_EQ(log.find(kWarning, said + 1), std::string::npos) << log;
  EXPECT_THAT(log.substr(said, log.find('\n', said) - said),
              AllOf(HasSubstr("step=0"), HasSubstr("epsilon=10"), HasSubstr("gradient_rms=")));

  TrainingRun usual({"run.steps=3", "replay.fraction=0"});
  ASSERT_EQ(usual.WaitExit().value(), 0) << usual.process().error_output();
  EXPECT_THAT(Content(usual.directory() / "logs/learner.log"),
              Not(HasSubstr(std::string(kWarning))));
}

// Promise: The on-policy ratio is exactly 1.
TEST(TrainingRunTest, LoraLeavesAnAdapter) {
  TrainingRun run({"run.steps=2", "model.trained=lora", "model.lora.rank=4", "model.lora.alpha=8"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_TRUE(
      std::filesystem::exists(run.directory() / "weights" / "pytorch_lora_weights.safetensors"));
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), Each(0.0));
}

// Variables that clusters and launchers leave in a shell: a proxy that is for the world outside,
// and ranks of somebody else's job.
// Promise: The surroundings of a run change nothing.
TEST(TrainingRunTest, ProxiesAndRanksOfItsSurroundingsAreNotForARun) {
  const std::pair<const char*, const char*> surroundings[] = {{"http_proxy", "http://127.0.0.1:9"},
                                                              {"https_proxy", "http://127.0.0.1:9"},
                                                              {"no_proxy", ""},
                                                              {"RANK", "1"},
                                                              {"WORLD_SIZE", "4"},
                                                              {"MASTER_ADDR", "node1"},
                                                              {"NUM_NODES", "2"}};
  for (const auto& [name, value] : surroundings) ::setenv(name, value, 1);
  TrainingRun run({"run.steps=2", "learner.rank_timeout_seconds=2"});
  for (const auto& [name, value] : surroundings) ::unsetenv(name);
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), SizeIs(2));
}

// Promise: Resume continues from the checkpoint.
TEST(TrainingRunTest, InterruptDrainsWritesACheckpointAndResumes) {
  TrainingRun run({"run.steps=500", "checkpoint.every=0"});
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  run.process().Kill(SIGINT);
  EXPECT_EQ(run.WaitExit(absl::Seconds(60)).value(), 130) << run.process().error_output();
  const int64_t reached = run.metrics().back()["step"];

  run.Resume({"run.steps=" + std::to_string(reached + 2)});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<nlohmann::json> rows = run.metrics();
  EXPECT_EQ(rows.back()["step"], reached + 2);
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_LT(rows[i - 1]["step"], rows[i]["step"]);
}

}  // namespace
}  // namespace oxbow::testing
