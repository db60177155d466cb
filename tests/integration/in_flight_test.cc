// SPDX-License-Identifier: Apache-2.0
// Weights that change while a group is sampled: new ones take over between two denoising steps.
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

// The learner scores a step of its own weights to the bit that the worker sent, if the sample says
// truly which weights took which step. Stored heads and their tails are sampled in flight, too.
// One worker, of 40 steps a group, so that new weights come while groups are sampled: in a third of
// the steps. With two workers it is rarer: one run of 30 steps trained no step of the current
// policy.
// Promise: A step belongs to the weights that took it.
TEST(InFlightTest, EveryStepIsScoredByTheWeightsThatTookIt) {
  TrainingRun run({"run.steps=30", "off_policy.staleness_max=1",
                   "off_policy.in_flight_updates=true", "replay.fraction=0.25", "batch.groups=8",
                   "batch.updates=1", "sampling.steps=40", "sampling.sde_count=38",
                   "method.step_fraction=0.05", "services.rollout_workers=1"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> shares = run.Series("rollout/in_flight_share");
  ASSERT_THAT(shares, SizeIs(30));
  EXPECT_GT(std::accumulate(shares.begin(), shares.end(), 0.0), 0)
      << "no weights came while a group was sampled";
  const std::vector<double> errors = run.Series("train/onpolicy_ratio_err");
  EXPECT_GT(errors.size(), 1u) << "no trained step was of the current policy";
  EXPECT_THAT(errors, Each(0));
}

}  // namespace
}  // namespace oxbow::testing
