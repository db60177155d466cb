// Several learner ranks: what is learnt does not depend on how many there are or on which one dies.
#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"

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

class RankDeathTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, RankDeathTest, ::testing::Values(SIGKILL, SIGSTOP));

// A dead rank ends the others at once, a stopped one after the rank timeout; all start again.
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
