// SPDX-License-Identifier: Apache-2.0
// Evaluations are the same byte for byte: for any number of workers, whichever process dies, and
// whether training waits for them or not. That their pictures are the right ones says
// parity_test.cc.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/run_results.h"
#include "tests/integration/run_status.h"
#include "tests/integration/training_run.h"
#include "tests/testing/scrape.h"

namespace oxbow::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> Overrides(const std::vector<std::string>& more) {
  std::vector<std::string> all = {
      "run.steps=6",    "run.deterministic=true", "checkpoint.every=3", "eval.every=2",
      "eval.images=70", "ema.enabled=true",       "replay.fraction=0",  "services.lease_seconds=2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

RunResults RunOf(const std::vector<std::string>& more) {
  TrainingRun run(Overrides(more));
  return ResultsOf(run);
}

const RunResults& DrawnByOneWorker() {
  static const RunResults left = RunOf({"services.rollout_workers=1"});
  return left;
}

// Promise: Any process draws an evaluation with the same bytes. Held-out pictures, sheets, files
// and numbers are the same for any number of workers on the same kind of device, and whichever
// process dies. Each number is on the line of the weights that it is about, also where training
// went on meanwhile. Lost leases are taken over, and a learner that dies meanwhile evaluates again.
// A run that is stopped meanwhile ends at once, and draws what it owes when it is resumed: numbers,
// files, losses and weights are those of one that was never stopped, also after a second stop. No
// picture is drawn with weights whose probe differs; pictures that were not asked for, of another
// size or for another start of the learner are refused.
TEST(WorkerEvaluationTest, HasTheSameBytesForAnyNumberOfWorkers) {
  ASSERT_GT(DrawnByOneWorker().numbers.size(), 4 * 3u) << "of steps 0, 2, 4 and 6";
  ASSERT_THAT(DrawnByOneWorker().files, Not(IsEmpty()));
  ExpectTheSame(RunOf({"services.rollout_workers=3"}), DrawnByOneWorker());
}

// Nothing but numbers depends on these evaluations, and no checkpoint waits for them.
// Promise: Any process draws an evaluation with the same bytes.
TEST(WorkerEvaluationTest, TrainingGoesOnMeanwhileAndEveryNumberIsOnItsOwnLine) {
  ExpectTheSame(RunOf({"checkpoint.best=", "checkpoint.every=0"}), DrawnByOneWorker());
}

// Before the run ends, where the learner waits for its last evaluation.
// Promise: Any process draws an evaluation with the same bytes.
TEST(WorkerEvaluationTest, NumbersOfEvaluationsBesideTrainingAreOnTheMetricsPage) {
  TrainingRun run(Overrides({"checkpoint.best=", "checkpoint.every=0", "run.steps=100000"}));
  ASSERT_TRUE(run.WaitForStep(3)) << run.process().error_output();
  const std::string page = AddressOfLearner(run, "metrics");
  std::optional<double> gauge;
  const absl::Time give_up = absl::Now() + kRunDeadline;
  while (!gauge.has_value() && absl::Now() < give_up) {
    gauge = Scrape(page, "oxbow_step{key=\"eval/reward_mean\"}");
  }
  ASSERT_TRUE(gauge.has_value());
  std::vector<double> logged;
  for (const nlohmann::json& row : run.metrics()) {
    if (row.contains("eval/reward_mean")) logged.push_back(row["eval/reward_mean"]);
  }
  EXPECT_THAT(logged, ::testing::Contains(::testing::DoubleNear(*gauge, 1e-6)));
  run.process().Kill(SIGINT);
  EXPECT_EQ(run.WaitExit().value(), 130) << run.process().error_output();
}

// Workers have them, and load nothing.
// Promise: Any process draws an evaluation with the same bytes.
TEST(WorkerEvaluationTest, HasTheBytesOfThePublishedWeightsWhereThoseAreEvaluated) {
  const RunResults one = RunOf({"eval.use_ema=false", "services.rollout_workers=1"});
  EXPECT_NE(one.numbers, DrawnByOneWorker().numbers) << "the average is another network";
  ExpectTheSame(RunOf({"eval.use_ema=false", "services.rollout_workers=2"}), one);
}

// Evaluations of so many pictures take a second or more, so that a signal comes meanwhile.
constexpr char kManyPictures[] = "eval.images=400";

std::vector<std::string> ManyPictures(const std::string& more = "services.rollout_workers=2") {
  return {"run.steps=4", "eval.every=3", kManyPictures, "services.rollout_workers=2", more};
}

// Whether the groups of this step, counted from 0, are what the learner trains on or has trained
// on.
bool IsFrozen(const TrainingRun& run, int step) {
  std::ifstream in(run.directory() / "steps.jsonl");
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object() && row["step"] == step) return true;
  }
  return false;
}

// Until the learner waits for its evaluation after step 3; with `beside` one more step is trained.
bool AwaitEvaluation(TrainingRun& run, bool beside = false) {
  if (!run.WaitForStep(2)) return false;
  const absl::Time give_up = absl::Now() + kRunDeadline;
  while (absl::Now() < give_up) {
    if (Evaluates(run) && IsFrozen(run, beside ? 3 : 2)) return true;
  }
  return false;
}

// The processes that draw pictures stand still as long as this lives, so that an evaluation does
// not end.
class HeldWorkers {
 public:
  HeldWorkers(const TrainingRun& run, pid_t supervisor)
      : workers_(ChildrenNamed(supervisor, "rollout_worker")) {
    for (const pid_t worker : workers_) ::kill(worker, SIGSTOP);
    // Messages that they sent before have come by the second answer.
    StatusOf(run);
    status_ = StatusOf(run);
  }
  ~HeldWorkers() {
    for (const pid_t worker : workers_) ::kill(worker, SIGCONT);
  }
  const v1::StatusResponse& status() const { return status_; }
  const std::vector<pid_t>& workers() const { return workers_; }
  uint32_t leases() const {
    uint32_t leases = 0;
    for (const v1::WorkerStatus& worker : status_.workers()) leases += worker.leases();
    return leases;
  }

 private:
  std::vector<pid_t> workers_;
  v1::StatusResponse status_;
};

// The workers, held at a moment at which they draw. Null if the evaluation is over before.
std::unique_ptr<HeldWorkers> HoldWhileTheyDraw(TrainingRun& run) {
  const absl::Time give_up = absl::Now() + kRunDeadline;
  while (absl::Now() < give_up) {
    auto held = std::make_unique<HeldWorkers>(run, run.process().pid());
    if (held->status().phase() != "evaluating") return nullptr;
    if (held->leases() > 0) return held;
  }
  return nullptr;
}

// Until the groups of four steps have come, each with `groups`; false if the learner evaluates no
// more.
bool AwaitGroupsOfFourSteps(const TrainingRun& run, int groups) {
  const std::string page = AddressOfLearner(run, "metrics");
  const std::string accepted = "oxbow_learner_results_total{outcome=\"accepted\"}";
  const absl::Time give_up = absl::Now() + kRunDeadline;
  while (absl::Now() < give_up) {
    const bool came = Scrape(page, accepted).value_or(0) >= 4 * groups;
    if (!Evaluates(run)) return false;
    if (came) return true;
  }
  return false;
}

const RunResults& ManyUndisturbed() {
  static const RunResults left = RunOf(ManyPictures());
  return left;
}

// Promise: Any process draws an evaluation with the same bytes.
TEST(WorkerEvaluationTest, AWorkerThatDiesMeanwhileChangesNoBit) {
  TrainingRun run(Overrides(ManyPictures()));
  ASSERT_TRUE(AwaitEvaluation(run)) << run.process().error_output();
  {
    const std::unique_ptr<HeldWorkers> held = HoldWhileTheyDraw(run);
    ASSERT_NE(held, nullptr) << "it was over before";
    ASSERT_EQ(held->status().workers_size(), 2);
    // All that hold pictures, whichever of the processes that is.
    for (const pid_t worker : held->workers()) ::kill(worker, SIGKILL);
  }
  ExpectTheSame(ResultsOf(run), ManyUndisturbed());
  std::ifstream in(run.directory() / "logs" / "learner.log");
  const std::string log = {std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(log, ::testing::HasSubstr("lease of held-out pictures expired"));
}

// Where training waits for the evaluation, and where it goes on meanwhile.
class LearnerDeathTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(By, LearnerDeathTest,
                         ::testing::Values("checkpoint.best=eval/reward_mean", "checkpoint.best="));

// Promise: Any process draws an evaluation with the same bytes.
TEST_P(LearnerDeathTest, DuringAnEvaluationChangesNoBit) {
  std::vector<std::string> overrides = ManyPictures(GetParam());
  // A checkpoint that is due would wait for it.
  if (GetParam() == "checkpoint.best=") overrides.push_back("checkpoint.every=0");
  TrainingRun run(Overrides(overrides));
  ASSERT_TRUE(AwaitEvaluation(run)) << run.process().error_output();
  ASSERT_TRUE(run.KillChild("learner", SIGKILL));
  ExpectTheSame(ResultsOf(run), ManyUndisturbed());
}

// Promise: Any process draws an evaluation with the same bytes.
TEST(WorkerEvaluationTest, AStopMeanwhileIsObeyedAtOnce) {
  TrainingRun run(Overrides(ManyPictures("eval.images=100000")));
  const absl::Time give_up = absl::Now() + kRunDeadline;
  bool evaluates = false;
  while (!evaluates && absl::Now() < give_up) evaluates = Evaluates(run);
  ASSERT_TRUE(evaluates);
  run.process().Kill(SIGINT);
  EXPECT_EQ(run.WaitExit(absl::Seconds(60)).value(), 130) << run.process().error_output();
}

std::string LearnerLog(const TrainingRun& run) {
  std::ifstream in(run.directory() / "logs" / "learner.log");
  return {std::istreambuf_iterator<char>(in), {}};
}

bool AwaitLog(const TrainingRun& run, const std::string& words) {
  const absl::Time give_up = absl::Now() + kRunDeadline;
  while (absl::Now() < give_up) {
    if (LearnerLog(run).find(words) != std::string::npos) return true;
  }
  return false;
}

// A run of six steps that is stopped during its evaluation after step 3, and resumed. Where
// training goes on meanwhile it is stopped after one more step, and again while the evaluation is
// drawn.
RunResults StoppedAndResumed(std::vector<std::string> overrides, bool beside = false) {
  overrides.insert(overrides.begin(),
                   {"run.steps=6", "eval.every=3", kManyPictures, "services.rollout_workers=2"});
  TrainingRun run(Overrides(overrides));
  const auto owed_weights = run.directory() / "checkpoints/step_000004/owed_evaluation.safetensors";
  for (int i = 0; i < (beside ? 2 : 1); ++i) {
    EXPECT_TRUE(AwaitEvaluation(run, beside)) << run.process().error_output();
    {
      const HeldWorkers held(run, run.process().pid());
      EXPECT_EQ(held.status().phase(), "evaluating") << "it was over before";
      run.process().Kill(SIGINT);
      EXPECT_TRUE(AwaitLog(run, "an evaluation is owed")) << run.process().error_output();
    }
    EXPECT_EQ(run.WaitExit().value(), 130) << run.process().error_output();
    EXPECT_THAT(LearnerLog(run), ::testing::ContainsRegex("an evaluation is owed.*step.{0,3}3"));
    EXPECT_EQ(std::filesystem::exists(owed_weights), beside);
    run.Resume(Overrides(overrides));
  }
  return ResultsOf(run);
}

const RunResults& NeverStopped() {
  static const RunResults left =
      RunOf({"run.steps=6", "eval.every=3", kManyPictures, "services.rollout_workers=2"});
  return left;
}

// Training has gone on meanwhile, so the weights to evaluate are not those of the checkpoint.
// Promise: Any process draws an evaluation with the same bytes.
TEST(WorkerEvaluationTest, AStopMeanwhileCostsNothingWhereTrainingWentOn) {
  ExpectTheSame(StoppedAndResumed({"checkpoint.best=", "checkpoint.every=0"}, /*beside=*/true),
                NeverStopped());
}

// Promise: Any process draws an evaluation with the same bytes.
TEST(WorkerEvaluationTest, AStopMeanwhileCostsNothingWhereTrainingWaited) {
  ExpectTheSame(StoppedAndResumed({}), NeverStopped());
}

// Nothing keeps the learner from one more step, after which it would have the evaluated weights no
// more.
// Promise: Any process draws an evaluation with the same bytes.
TEST(WorkerEvaluationTest, AStopMeanwhileCostsNothingWhereTheGroupsOfTheNextStepAreThere) {
  const std::vector<std::string> overrides = {"run.steps=4", "eval.every=3", "eval.images=1000",
                                              "batch.groups=8", "services.rollout_workers=2"};
  // Workers draw pictures first once the learner waits for them. Those that had step 4's weights
  // before have its groups by then; a slow one has not, and another run is begun.
  std::unique_ptr<TrainingRun> run;
  bool came = false;
  for (int attempt = 0; !came && attempt < 4; ++attempt) {
    run = std::make_unique<TrainingRun>(Overrides(overrides));
    ASSERT_TRUE(AwaitEvaluation(*run)) << run->process().error_output();
    came = AwaitGroupsOfFourSteps(*run, /*groups=*/8);
  }
  ASSERT_TRUE(came) << "the evaluation was over before, each time";
  run->process().Kill(SIGINT);
  ASSERT_EQ(run->WaitExit().value(), 130) << run->process().error_output();
  EXPECT_FALSE(IsFrozen(*run, 3)) << "it trained on";
  run->Resume(Overrides(overrides));
  ExpectTheSame(ResultsOf(*run), RunOf(overrides));
}

}  // namespace
}  // namespace oxbow::testing
