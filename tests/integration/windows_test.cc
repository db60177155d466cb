// SPDX-License-Identifier: Apache-2.0
// Runs whose stochastic window moves between learner steps, with replayed heads of earlier windows.
#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::Gt;
using ::testing::SizeIs;

const std::vector<std::string> kOverrides = {"run.steps=9",
                                             "run.deterministic=true",
                                             "checkpoint.every=3",
                                             "replay.fraction=0.25",
                                             "sampling.sde_count=7",
                                             "sampling.window.kind=progressive",
                                             "sampling.window.size=3",
                                             "sampling.window.hold=1",
                                             "sampling.solver=dpmpp_2m"};

TEST(WindowsTest, AMovingWindowTrainsAndIsTheSameForAnyWorkersAndAfterAResume) {
  TrainingRun run(kOverrides);
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> losses = run.Series("train/loss");
  const std::string weights = run.FinalWeights();
  ASSERT_THAT(losses, SizeIs(9));
  EXPECT_THAT(run.Series("train/window_first"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 0, 1));
  EXPECT_THAT(run.Series("train/window_steps"), ElementsAre(3, 3, 3, 3, 3, 2, 1, 3, 3));
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), Each(0));
  EXPECT_THAT(run.Series("train/update_norm"), Each(Gt(0)));
  EXPECT_THAT(run.Series("buffer/heads_other_window"), Contains(Gt(0)));
  EXPECT_THAT(run.Series("buffer/heads_refused"), Each(0));

  std::vector<std::string> two = kOverrides;
  two.insert(two.end(), {"services.rollout_workers=2", "services.groups_in_flight=3"});
  TrainingRun with_two(two);
  ASSERT_EQ(with_two.WaitExit().value(), 0) << with_two.process().error_output();
  EXPECT_THAT(with_two.Series("train/loss"), ElementsAreArray(losses));

  TrainingRun stopped(kOverrides);
  ASSERT_TRUE(stopped.WaitForStep(4)) << stopped.process().error_output();
  ASSERT_TRUE(stopped.KillChild("learner", SIGKILL));
  ASSERT_EQ(stopped.WaitExit().value(), 0) << stopped.process().error_output();
  EXPECT_THAT(stopped.Series("train/loss"), ElementsAreArray(losses));
  EXPECT_TRUE(stopped.FinalWeights() == weights) << "other bytes";
}

// Groups are planned two learner steps ahead: each keeps the window of its own step, or the sink
// would refuse it.
TEST(WindowsTest, StaleGroupsKeepTheWindowTheyWerePlannedWith) {
  TrainingRun run({"run.steps=6", "replay.fraction=0", "sampling.sde_count=7",
                   "sampling.window.kind=random", "sampling.window.size=2",
                   "off_policy.publish_every=2", "off_policy.staleness_max=2"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/window_steps"), Each(2));
  EXPECT_THAT(run.Series("rollout/groups_discarded"), Each(0));
  EXPECT_THAT(run.Series("rollout/staleness_max"), Contains(Gt(0)));
}

}  // namespace
}  // namespace oxbow::testing
