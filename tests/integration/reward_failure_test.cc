// SPDX-License-Identifier: Apache-2.0
// Reward servers that answer without a score, that go away, and that hang: a run drops what cannot
// be scored, waits for who is away, and ends in the server's words if nothing can be scored.
#include <signal.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/scripted_rewards.h"
#include "tests/integration/training_run.h"
#include "tests/testing/eventually.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Answer = ScriptedRewards::Answer;

const std::vector<std::string> kNames = {"digits_ocr"};

std::vector<std::string> Overrides(const std::string& endpoint,
                                   const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {
      "reward.endpoints=[\"" + endpoint + "\"]", "reward.terms=[{name: digits_ocr, weight: 1}]",
      "reward.observed=[]", "services.lease_seconds=3", "batch.group_size=4"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

Answer Bright(const v1::Image& image) {
  return {.value = Brightness(image), .item_error = {}, .call_error = {}};
}

std::string StatusOf(const TrainingRun& run) {
  return RunOxbow({"status", "--run", run.directory().string()}).output;
}

// About one prompt in six, and of its images every second.
bool IsPoisonous(const std::string& prompt, const v1::Image& image) {
  uint64_t text = 0;
  for (const char letter : prompt) text = 31 * text + static_cast<uint8_t>(letter);
  uint64_t pixels = 0;
  for (const char pixel : image.pixels()) pixels += static_cast<uint8_t>(pixel);
  return text % 6 == 0 && pixels % 2 == 0;
}

// Promise: An image that cannot be scored does not stop a run. A group that fails twice because a
// reward server answers without a score is made once more, without its unscored samples. Its prompt
// is listed as quarantined. The images alone decide which samples are dropped: a deterministic run
// has the same losses for any number of workers.
TEST(RewardFailureTest, ImagesWithoutAScoreAreDroppedAndTheRunStaysAFunctionOfItsSeed) {
  const auto script = [](const std::string& prompt, const v1::Image& image) {
    Answer answer = Bright(image);
    if (IsPoisonous(prompt, image)) answer.value = std::numeric_limits<double>::quiet_NaN();
    return answer;
  };
  ScriptedRewards rewards(kNames, script);
  const std::vector<std::string> overrides =
      Overrides(rewards.endpoint(), {"run.steps=3", "run.deterministic=true"});
  TrainingRun run(overrides);
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> losses = run.Series("train/loss");
  const std::vector<double> unscored = run.Series("train/samples_unscored");
  ASSERT_THAT(losses, SizeIs(3));
  EXPECT_GT(unscored[0] + unscored[1] + unscored[2], 0);
  for (const double reward : run.Series("train/reward_mean")) {
    EXPECT_TRUE(std::isfinite(reward)) << "never a made-up score";
  }
  EXPECT_THAT(run.process().error_output(), Not(HasSubstr("started again")));

  std::vector<std::string> other = overrides;
  other.emplace_back("services.rollout_workers=2");
  TrainingRun workers(other);
  ASSERT_EQ(workers.WaitExit().value(), 0) << workers.process().error_output();
  EXPECT_THAT(workers.Series("train/loss"), ElementsAreArray(losses));
  EXPECT_THAT(workers.Series("train/samples_unscored"), ElementsAreArray(unscored));
  EXPECT_EQ(workers.FinalWeights(), run.FinalWeights());
}

// As where no face is found: about one picture in nine. Not the grey image of the check.
bool HasNoFace(const v1::Image& image) {
  const std::set<char> colours(image.pixels().begin(), image.pixels().end());
  uint64_t pixels = 0;
  for (const char pixel : image.pixels()) pixels += static_cast<uint8_t>(pixel);
  return colours.size() > 1 && pixels % 9 == 0;
}

// Promise: One picture without a score costs no evaluation.
// Promise: A picture that cannot be scored is drawn once.
TEST(RewardFailureTest, APictureThatCannotBeScoredCostsNeitherItsGroupNorAnEvaluation) {
  ScriptedRewards rewards(kNames, [&](const std::string&, const v1::Image& image) {
    Answer answer = Bright(image);
    if (HasNoFace(image)) answer.item_error = "no face";
    answer.final = true;
    return answer;
  });
  TrainingRun run(
      Overrides(rewards.endpoint(),
                {"run.steps=4", "eval.every=2", "eval.images=64", "reward.on_failure=fail",
                 "run.stop_if=[{metric: eval/reward_mean, below: 2, after_step: 1}]"}));
  EXPECT_EQ(run.WaitExit().value(), kExitStopped) << run.process().error_output();
  const std::vector<double> missing = run.Series("eval/samples_unscored");
  EXPECT_THAT(missing, ::testing::AllOf(SizeIs(1), Each(Gt(0.0))));
  EXPECT_THAT(run.Series("eval/reward_mean"), SizeIs(1));
  EXPECT_THAT(run.Series("train/samples_unscored"), ::testing::Contains(Gt(0.0)));
  EXPECT_THAT(run.process().output(), HasSubstr("without a score"));
  const std::string log = *ReadFile(run.directory() / "logs" / "learner.log");
  EXPECT_THAT(log, Not(HasSubstr("group failed"))) << "nothing was drawn again";
  EXPECT_THAT(log, HasSubstr("some samples have no score and train nothing"));
  EXPECT_THAT(StatusOf(run), HasSubstr("have no score: "));
  EXPECT_THAT(StatusOf(run), HasSubstr("no face"));
}

// Promise: One picture without a score costs no evaluation.
TEST(RewardFailureTest, AnEvaluationOfWhichNothingIsScoredSaysSoAndWhoGotNoNumber) {
  std::set<std::string> held_out;
  std::ifstream prompts(OXBOW_SOURCE_DIR "/configs/prompts/digits_eval.txt");
  for (std::string line; std::getline(prompts, line);) held_out.insert(line);
  ScriptedRewards rewards(kNames, [&](const std::string& prompt, const v1::Image& image) {
    const std::set<char> colours(image.pixels().begin(), image.pixels().end());
    Answer answer = Bright(image);
    if (held_out.contains(prompt) && colours.size() > 1) answer.item_error = "no face";
    return answer;
  });
  TrainingRun run(Overrides(rewards.endpoint(),
                            {"run.steps=2", "eval.every=1", "checkpoint.best=eval/reward_mean",
                             "run.stop_if=[{metric: eval/reward_mean, below: 2}]"}));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("eval/failed"), ElementsAreArray({1.0, 1.0}));
  EXPECT_THAT(run.Series("eval/reward_mean"), SizeIs(0));
  for (const std::string& said : {run.process().output(), StatusOf(run)}) {
    EXPECT_THAT(said, HasSubstr("pictures have no score"));
    EXPECT_THAT(said, HasSubstr("no face; no number for run.stop_if, checkpoint.best"));
  }
  EXPECT_THAT(StatusOf(run), HasSubstr("3 of 3 evaluations failed, the last at step 2"));
}

// Promise: A reward that cannot score at all ends the run once. The run ends in the server's words:
// before the first step if one grey image cannot be scored, and later, with a checkpoint, if over
// 90 % of a step's samples cannot. The exit code is final: nothing is started again.
TEST(RewardFailureTest, ARewardThatNeverScoresEndsTheRunBeforeItsFirstStepInItsWords) {
  ScriptedRewards rewards(kNames, [](const std::string&, const v1::Image&) {
    return Answer{.value = 0, .item_error = {}, .call_error = "CUDA out of memory"};
  });
  TrainingRun run(Overrides(rewards.endpoint(), {"run.steps=4"}));
  EXPECT_EQ(run.WaitExit().value(), kExitData);
  EXPECT_THAT(run.process().error_output(), HasSubstr("a reward cannot score"));
  EXPECT_THAT(run.process().error_output(), HasSubstr("CUDA out of memory"));
  EXPECT_THAT(run.process().error_output(), Not(HasSubstr("started again")));
  EXPECT_THAT(run.metrics(), SizeIs(0)) << "nothing was made";
}

// Promise: A reward that cannot score at all ends the run once.
TEST(RewardFailureTest, ARewardThatBreaksDuringTheRunEndsItWithACheckpointAndItsWords) {
  std::atomic<bool> broken = false;
  ScriptedRewards rewards(kNames, [&](const std::string&, const v1::Image& image) {
    Answer answer = Bright(image);
    if (broken) answer.call_error = "CUDA out of memory";
    return answer;
  });
  TrainingRun run(
      Overrides(rewards.endpoint(), {"run.steps=100000", "checkpoint.every=0", "batch.groups=4"}));
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  broken = true;
  EXPECT_EQ(run.WaitExit().value(), kExitData);
  const std::string said = run.process().error_output();
  EXPECT_THAT(said, HasSubstr("images cannot be scored"));
  EXPECT_THAT(said, HasSubstr("CUDA out of memory"));
  EXPECT_THAT(said, Not(HasSubstr("started again")));
  // The steps before are not lost.
  broken = false;
  const auto steps = run.metrics().back()["step"].get<int64_t>();
  run.Resume(
      Overrides(rewards.endpoint(), {"run.steps=100000", "checkpoint.every=0", "batch.groups=4"}));
  ASSERT_TRUE(run.WaitForStep(steps + 1)) << run.process().error_output();
  run.process().Kill(SIGINT);
  EXPECT_EQ(run.WaitExit().value(), kExitInterrupted) << run.process().error_output();
}

// Promise: A run waits for its reward servers. While no reward server answers, workers keep their
// groups and leases, and no failure is counted. A worker that comes meanwhile is connected, says
// that it waits and asks for no work. The run says that it waits, and names the server. It goes on
// when a server answers. A stop request is obeyed meanwhile, also during an evaluation.
TEST(RewardFailureTest, ARunWaitsForARewardServerThatIsAwayAndGoesOnWhenItIsBack) {
  const auto script = [](const std::string&, const v1::Image& image) { return Bright(image); };
  auto rewards = std::make_unique<ScriptedRewards>(kNames, script);
  const std::string endpoint = rewards->endpoint();
  rewards.reset();
  // A silence of one try makes a call wait, and no rest is longer than a try.
  TrainingRun run(Overrides(endpoint, {"run.steps=100000", "batch.groups=4", "reward.tries=1",
                                       "reward.timeout_seconds=1"}));
  const auto waits = [&] { return absl::StrContains(StatusOf(run), "for rewards: "); };
  ASSERT_TRUE(Eventually(waits)) << run.process().error_output();
  EXPECT_THAT(StatusOf(run), HasSubstr(endpoint)) << "the reason";
  rewards = std::make_unique<ScriptedRewards>(kNames, script, endpoint);
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();

  rewards.reset();
  ASSERT_TRUE(Eventually(waits)) << StatusOf(run) << run.process().error_output();
  const Outcome doctor =
      RunOxbow({"doctor", "--run-dir", run.directory().string(), "--format", "json"});
  EXPECT_EQ(doctor.exit_code, 1) << doctor.output;
  EXPECT_THAT(doctor.output, HasSubstr("groups failing"));
  EXPECT_THAT(doctor.output, HasSubstr("reward " + endpoint)) << "it was asked";
  const auto step = run.metrics().back()["step"].get<int64_t>();
  rewards = std::make_unique<ScriptedRewards>(kNames, script, endpoint);
  ASSERT_TRUE(run.WaitForStep(step + 2)) << StatusOf(run) << run.process().error_output();
  EXPECT_THAT(StatusOf(run), HasSubstr("(epoch 1,")) << "the learner was not started again";
  // The worker's next renewal says that it no longer waits.
  EXPECT_TRUE(Eventually([&] { return !absl::StrContains(StatusOf(run), "trouble"); }))
      << StatusOf(run);
  run.process().Kill(SIGINT);
  EXPECT_EQ(run.WaitExit().value(), kExitInterrupted) << run.process().error_output();
  EXPECT_THAT(run.process().error_output(), Not(HasSubstr("started again")));
  EXPECT_THAT(run.Series("time/rewards_s"), ::testing::Contains(Gt(0.4)))
      << "that wait has a phase of its own";
}

// As a judge whose first call takes longer than the run waits for it.
// Promise: A run waits for its reward servers.
TEST(RewardFailureTest,
     AServerThatGivesNoScoreAtTheStartIsNamedEverywhereWithTheKeyThatAllowsMore) {
  absl::Notification released;
  ScriptedRewards rewards(kNames, [&](const std::string&, const v1::Image& image) {
    released.WaitForNotificationWithTimeout(kRunDeadline);
    return Bright(image);
  });
  TrainingRun run(Overrides(rewards.endpoint(), {"run.steps=2", "reward.timeout_seconds=1"}));
  const std::string words = "reward server " + rewards.endpoint() +
                            " gave no score for `digits_ocr` within 1 s (reward.timeout_seconds)";
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(StatusOf(run), words); }))
      << StatusOf(run) << run.process().error_output();
  const Outcome doctor =
      RunOxbow({"doctor", "--run-dir", run.directory().string(), "--format", "json"});
  EXPECT_EQ(doctor.exit_code, 1) << doctor.output;
  EXPECT_THAT(doctor.output, HasSubstr(words));
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(run.process().output(), words); }));
  released.Notify();
  EXPECT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
}

// The evaluation would take 30 s for each of many calls.
// Promise: A run waits for its reward servers.
TEST(RewardFailureTest, AStopDuringAnEvaluationThatHangsIsObeyedAtOnce) {
  std::set<std::string> held_out;
  std::ifstream prompts(OXBOW_SOURCE_DIR "/configs/prompts/digits_eval.txt");
  for (std::string line; std::getline(prompts, line);) held_out.insert(line);
  absl::Notification hangs;
  absl::Notification released;
  std::atomic<bool> first = true;
  ScriptedRewards rewards(kNames, [&](const std::string& prompt, const v1::Image& image) {
    const std::set<char> colours(image.pixels().begin(), image.pixels().end());
    if (held_out.contains(prompt) && colours.size() > 1) {  // Not the grey image of the check.
      if (first.exchange(false)) hangs.Notify();
      released.WaitForNotificationWithTimeout(absl::Minutes(3));
    }
    return Bright(image);
  });
  TrainingRun run(
      Overrides(rewards.endpoint(), {"run.steps=4", "eval.every=1", "reward.timeout_seconds=300"}));
  ASSERT_TRUE(hangs.WaitForNotificationWithTimeout(absl::Seconds(60)));
  run.process().Kill(SIGTERM);
  EXPECT_EQ(run.WaitExit(absl::Seconds(60)).value(), kExitTerminated)
      << run.process().error_output();
  released.Notify();
}

}  // namespace
}  // namespace oxbow::testing
