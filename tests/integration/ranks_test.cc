// SPDX-License-Identifier: Apache-2.0
// Several learner ranks: the result depends neither on their number nor on which one dies.
#include <signal.h>

#include <fstream>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
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
          "replay.fraction=0.25",
          "services.lease_seconds=3",
          "learner.rank_timeout_seconds=5",
          "learner.ranks=" + std::to_string(ranks)};
}

// What a run left: its losses and the bytes of its weights.
struct Left {
  std::vector<double> losses;
  std::string weights;
};

Left WhatIsLeft(TrainingRun& run) {
  EXPECT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  return {run.Series("train/loss"), run.FinalWeights()};
}

const Left& OneRank() {
  static const Left left = [] {
    TrainingRun run(Overrides(1));
    return WhatIsLeft(run);
  }();
  return left;
}

class RanksTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, RanksTest, ::testing::Values(2, 4));

TEST_P(RanksTest, DeterministicRunsHaveTheSameBitsForEveryNumberOfRanks) {
  ASSERT_THAT(OneRank().losses, SizeIs(kSteps));
  TrainingRun run(Overrides(GetParam()));
  const Left left = WhatIsLeft(run);
  EXPECT_THAT(left.losses, ElementsAreArray(OneRank().losses));
  EXPECT_TRUE(left.weights == OneRank().weights) << "other bytes";
}

TEST(RanksReuseTest, EveryFormOfReuseHasTheSameBitsForEveryNumberOfRanks) {
  const auto run_with = [](int ranks) {
    std::vector<std::string> overrides = Overrides(ranks);
    const std::vector<std::string> reuse = ReuseOverrides();
    overrides.insert(overrides.end(), reuse.begin(), reuse.end());
    TrainingRun run(overrides);
    Left left = WhatIsLeft(run);
    double joined = 0;
    for (const double late : run.Series("train/groups_bound_late")) joined += late;
    EXPECT_GT(joined, 0) << ranks << " ranks";
    return left;
  };
  const Left one = run_with(1);
  ASSERT_THAT(one.losses, SizeIs(10));
  const Left two = run_with(2);
  EXPECT_THAT(two.losses, ElementsAreArray(one.losses));
  EXPECT_TRUE(two.weights == one.weights) << "other bytes";
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
    for (const std::string series :
         {"oxbow_learner_step_duration_seconds_count", "oxbow_learner_communication_seconds"}) {
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
TEST_P(RankDeathTest, ARankThatIsGoneChangesNoBit) {
  TrainingRun run(Overrides(2));
  ASSERT_TRUE(run.WaitForStep(4)) << run.process().error_output();
  const std::vector<pid_t> first = ChildrenNamed(run.process().pid(), "learner");
  ASSERT_THAT(first, SizeIs(1));
  const std::vector<pid_t> others = ChildrenNamed(first[0], "learner");
  ASSERT_THAT(others, SizeIs(1));
  ASSERT_EQ(kill(others[0], GetParam()), 0);
  const Left left = WhatIsLeft(run);
  EXPECT_THAT(left.losses, ElementsAreArray(OneRank().losses));
  EXPECT_TRUE(left.weights == OneRank().weights) << "other bytes";
  EXPECT_NE(kill(others[0], 0), 0) << "the stopped rank was left behind";
}

}  // namespace
}  // namespace oxbow::testing
