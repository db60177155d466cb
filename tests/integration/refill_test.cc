// SPDX-License-Identifier: Apache-2.0
// Groups with equal rewards are replaced by other prompts of the same learner step: by the same
// prompts for any number of workers, ranks and starts.
#include <signal.h>

#include <algorithm>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::Le;
using ::testing::SizeIs;

constexpr int kSteps = 6;

// A reward that is zero for most groups of four.
std::vector<std::string> Overrides(const std::vector<std::string>& more) {
  std::vector<std::string> overrides = {"run.steps=" + std::to_string(kSteps),
                                        "run.deterministic=true",
                                        "checkpoint.every=2",
                                        "replay.fraction=0.25",
                                        "batch.group_size=4",
                                        "batch.dynamic_sampling_max=10",
                                        "reward.terms=[{name: digits_strict, weight: 1}]",
                                        "reward.observed=[digits_row]",
                                        "services.lease_seconds=3"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Promise: Dynamic sampling changes no promise. `batch.dynamic_sampling_max` allows extra groups in
// place of groups without a learning signal. The extra groups are the same for any number of
// workers, ranks and starts. Each is made once, within the staleness budget, and never after a
// later step's groups. The groups that they replace count in `rollout/samples`, in
// `rollout/rows_forward` and in the costs that `oxbow bench learning` reports.
TEST(RefillTest, MoreGroupsTeachAndTheRunStaysAFunctionOfItsConfiguration) {
  TrainingRun run(Overrides({}));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> losses = run.Series("train/loss");
  const std::vector<double> refilled = run.Series("train/refilled_groups");
  const std::string weights = run.FinalWeights();
  ASSERT_THAT(losses, SizeIs(kSteps));
  EXPECT_THAT(refilled, Each(Le(10)));
  EXPECT_GT(Sum(refilled), 0);
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), Each(0));

  // Replaced groups were sampled, too: four samples each, of ten steps where they have no head.
  const std::vector<double> trained = run.Series("train/samples");
  const std::vector<double> rows = run.Series("rollout/rows_forward");
  for (const nlohmann::json& line : run.metrics()) {
    if (line["step"] == 0) continue;
    const size_t step = line["step"].get<size_t>() - 1;
    const bool replaced = refilled[step] > 0;
    EXPECT_EQ(line.contains("rollout/samples"), replaced) << "else it is train/samples";
    const double samples = line.value("rollout/samples", trained[step]);
    EXPECT_EQ(samples, trained[step] + 4 * refilled[step]);
    EXPECT_LE(rows[step], 10 * samples);
    EXPECT_GE(rows[step], 10 * 4 * refilled[step]);
  }

  TrainingRun without(Overrides({"batch.dynamic_sampling_max=0"}));
  ASSERT_EQ(without.WaitExit().value(), 0) << without.process().error_output();
  EXPECT_THAT(without.Series("train/refilled_groups"), Each(0));
  EXPECT_LT(Sum(run.Series("train/reward_zero_std_ratio")),
            Sum(without.Series("train/reward_zero_std_ratio")));

  TrainingRun workers(Overrides({"services.rollout_workers=2", "services.groups_in_flight=3"}));
  ASSERT_EQ(workers.WaitExit().value(), 0) << workers.process().error_output();
  EXPECT_THAT(workers.Series("train/loss"), ElementsAreArray(losses));
  EXPECT_THAT(workers.Series("train/refilled_groups"), ElementsAreArray(refilled));

  TrainingRun ranks(Overrides({"learner.ranks=2"}));
  ASSERT_EQ(ranks.WaitExit().value(), 0) << ranks.process().error_output();
  EXPECT_THAT(ranks.Series("train/loss"), ElementsAreArray(losses));
  EXPECT_TRUE(ranks.FinalWeights() == weights) << "other bytes";

  TrainingRun killed(Overrides({}));
  ASSERT_TRUE(killed.WaitForStep(3)) << killed.process().error_output();
  ASSERT_TRUE(killed.KillChild("learner", SIGKILL));
  ASSERT_EQ(killed.WaitExit().value(), 0) << killed.process().error_output();
  EXPECT_THAT(killed.Series("train/loss"), ElementsAreArray(losses));
  EXPECT_TRUE(killed.FinalWeights() == weights) << "other bytes";
}

// Weights are published every second step, and groups are planned ahead of them: refills must not
// wait behind groups of later steps for room in the staleness budget.
// Promise: Dynamic sampling changes no promise.
TEST(RefillTest, StaleWeightsAndRefillsDoNotBlockEachOther) {
  TrainingRun run(Overrides({"run.deterministic=false", "off_policy.publish_every=2",
                             "off_policy.staleness_max=1", "services.rollout_workers=2"}));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_GT(Sum(run.Series("train/refilled_groups")), 0);
  EXPECT_THAT(run.Series("rollout/staleness_max"), Each(Le(1)));
}

}  // namespace
}  // namespace oxbow::testing
