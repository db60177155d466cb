// Any one process may die at any time; the run goes on or restarts by itself.
#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

class CrashTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CrashTest, TheRunFinishesAfterAKill) {
  constexpr int kSteps = 14;
  TrainingRun run({"run.steps=" + std::to_string(kSteps), "checkpoint.every=4",
                   "services.lease_seconds=3", "services.reward_servers=2",
                   "replay.fraction=0.25"});
  ASSERT_TRUE(run.WaitForStep(3)) << run.process().error_output();
  ASSERT_TRUE(run.KillChild(GetParam(), SIGKILL));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), SizeIs(kSteps));
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), Each(0.0));
}

INSTANTIATE_TEST_SUITE_P(Processes, CrashTest,
                         ::testing::Values("rollout_worker", "reward_server", "replay_buffer",
                                           "learner"));

}  // namespace
}  // namespace oxbow::testing
