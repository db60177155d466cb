// SPDX-License-Identifier: Apache-2.0
// Several learner ranks: the result depends neither on their number nor on which one dies.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/run_results.h"
#include "tests/integration/run_status.h"
#include "tests/integration/training_run.h"
#include "tests/testing/scrape.h"

namespace oxbow::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::SizeIs;

constexpr int kSteps = 8;

std::vector<std::string> Overrides(int ranks) {
  return {"run.steps=" + std::to_string(kSteps),
          "run.deterministic=true",
          "checkpoint.every=3",
          "eval.every=4",
          "eval.images=70",
          "ema.enabled=true",
          "replay.fraction=0.25",
          "services.lease_seconds=3",
          "learner.rank_timeout_seconds=5",
          "learner.ranks=" + std::to_string(ranks)};
}

const RunResults& OneRank() {
  static const RunResults left = [] {
    TrainingRun run(Overrides(1));
    return ResultsOf(run);
  }();
  return left;
}

class RanksTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, RanksTest, ::testing::Values(2, 4));

// Promise: The number of ranks changes no number. A deterministic run has the same losses, the same
// bytes of weights and the same evaluations (numbers, sheet and file) with 1, 2 and 4 learner
// ranks. Other runs agree within float32 reduction error. Statistics that cross groups are exact
// over ranks.
TEST_P(RanksTest, DeterministicRunsHaveTheSameBitsForEveryNumberOfRanks) {
  ASSERT_THAT(OneRank().losses, SizeIs(kSteps));
  TrainingRun run(Overrides(GetParam()));
  ASSERT_GT(OneRank().numbers.size(), 2 * 3u);
  ASSERT_GE(OneRank().files.size(), 2 * 3u) << "of steps 0, 4 and 8";
  ExpectTheSame(ResultsOf(run), OneRank());
}

// Promise: Reuse beyond a drawn head keeps its bounds.
// Promise: Chosen prompts follow from the seed.
TEST(RanksReuseTest, EveryFormOfReuseHasTheSameBitsForEveryNumberOfRanks) {
  const auto run_with = [](int ranks) {
    std::vector<std::string> overrides = Overrides(ranks);
    const std::vector<std::string> reuse = ReuseOverrides();
    overrides.insert(overrides.end(), reuse.begin(), reuse.end());
    TrainingRun run(overrides);
    RunResults left = ResultsOf(run);
    double joined = 0;
    for (const double late : run.Series("train/groups_bound_late")) joined += late;
    EXPECT_GT(joined, 0) << ranks << " ranks";
    return left;
  };
  const RunResults one = run_with(1);
  ASSERT_THAT(one.losses, SizeIs(10));
  ExpectTheSame(run_with(2), one);
}

// Groups that are left out and groups of earlier steps stand on every rank.
// Promise: The number of ranks changes no number.
TEST(RanksAdaptationTest, AdaptedRunsHaveTheSameBitsForEveryNumberOfRanks) {
  const auto run_with = [](int ranks) {
    std::vector<std::string> overrides = Overrides(ranks);
    overrides.insert(overrides.end(), {"run.steps=10", "adaptation.enabled=true",
                                       "adaptation.again_every=2", "adaptation.again_max=3",
                                       "adaptation.hard_max=0.4", "adaptation.reuse_max=0.9"});
    TrainingRun run(overrides);
    RunResults left = ResultsOf(run);
    for (const char* const series : {"adaptation/hard_again", "adaptation/groups_reused"}) {
      double sum = 0;
      for (const double groups : run.Series(series)) sum += groups;
      EXPECT_GT(sum, 0) << series << " with " << ranks << " ranks";
    }
    return left;
  };
  const RunResults one = run_with(1);
  ASSERT_THAT(one.losses, SizeIs(10));
  for (const int ranks : {2, 4}) ExpectTheSame(run_with(ranks), one);
}

TEST(RankEndpointsTest, EveryRankIsInEndpointsWithMetricsAndInTheStatus) {
  std::vector<std::string> overrides = Overrides(2);
  overrides.push_back("run.steps=500");
  TrainingRun run(overrides);
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  std::ifstream in(run.directory() / "endpoints.json");
  const nlohmann::json endpoints = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(endpoints.is_object());
  std::map<std::string, std::string> metrics;
  for (const nlohmann::json& service : endpoints["services"]) {
    metrics[service["name"]] = service["metrics"];
  }
  for (const std::string name : {"learner", "learner-1"}) {
    ASSERT_TRUE(metrics.contains(name)) << endpoints;
    for (const std::string series : {"oxbow_learner_step_duration_seconds_count",
                                     "oxbow_step{key=\"train/communication_s\"}"}) {
      EXPECT_GT(Scrape(metrics[name], series).value_or(0), 0) << name << " " << series;
    }
  }
  const Outcome status = RunOxbow({"status", "--run", run.directory().string()});
  EXPECT_EQ(status.exit_code, 0) << status.message;
  EXPECT_THAT(status.output, ::testing::HasSubstr("metrics at " + metrics["learner-1"]));
  run.process().Kill(SIGINT);
  EXPECT_EQ(run.WaitExit().value(), 130) << run.process().error_output();
}

class RankDeathTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, RankDeathTest, ::testing::Values(SIGKILL, SIGSTOP));

// A dead rank ends the others at once, a stopped one after the rank timeout; then all are
// restarted.
// Promise: A lost rank ends all ranks. When a learner rank dies, the others end at once. When a
// rank hangs, they end after `learner.rank_timeout_seconds`. All start again together and end with
// the same bytes, also where it was lost during an evaluation, which then comes again.
TEST_P(RankDeathTest, ARankThatIsGoneChangesNoBit) {
  TrainingRun run(Overrides(2));
  ASSERT_TRUE(run.WaitForStep(4)) << run.process().error_output();
  const std::vector<pid_t> first = ChildrenNamed(run.process().pid(), "learner");
  ASSERT_THAT(first, SizeIs(1));
  const std::vector<pid_t> others = ChildrenNamed(first[0], "learner");
  ASSERT_THAT(others, SizeIs(1));
  ASSERT_EQ(kill(others[0], GetParam()), 0);
  ExpectTheSame(ResultsOf(run), OneRank());
  EXPECT_NE(kill(others[0], 0), 0) << "the stopped rank was left behind";
}

// Draws and sends for seconds, so that the signal comes meanwhile.
// Promise: A lost rank ends all ranks.
TEST_P(RankDeathTest, ARankThatIsGoneDuringAnEvaluationChangesNoBit) {
  const auto overrides = [](int ranks) {
    std::vector<std::string> all = Overrides(ranks);
    // Moments in one piece: no checkpoint needs the rank that is gone.
    all.insert(all.end(), {"run.steps=4", "eval.images=400", "model.memory=whole_optimizer"});
    return all;
  };
  TrainingRun alone(overrides(1));
  const RunResults one = ResultsOf(alone);
  TrainingRun run(overrides(2));
  const absl::Time give_up = absl::Now() + kRunDeadline;
  ASSERT_TRUE(run.WaitForStep(3)) << run.process().error_output();
  const std::vector<pid_t> others =
      ChildrenNamed(ChildrenNamed(run.process().pid(), "learner").at(0), "learner");
  ASSERT_THAT(others, SizeIs(1));
  while (!Evaluates(run) && absl::Now() < give_up) {
  }
  ASSERT_EQ(kill(others[0], GetParam()), 0);
  ExpectTheSame(ResultsOf(run), one);
}

}  // namespace
}  // namespace oxbow::testing
