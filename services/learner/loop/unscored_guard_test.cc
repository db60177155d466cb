// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/learner/loop/score_watch.h"

namespace oxbow::learner {
namespace {

using ::testing::HasSubstr;

// Groups of ten samples; `unscored` of all samples have no score.
std::vector<ReceivedGroup> Groups(uint64_t groups, uint64_t unscored) {
  std::vector<ReceivedGroup> step(groups);
  for (uint64_t i = 0; i < 10 * groups; ++i) {
    step[i / 10].group.add_trajectories()->set_reward_failed(i < unscored);
  }
  return step;
}

// Promise: A reward that cannot score at all ends the run once.
TEST(UnscoredGuardTest, AStepWithoutScoresEndsTheRunInTheServersWords) {
  UnscoredGuard guard;
  EXPECT_TRUE(guard.Check(LearnerStep(2), Groups(4, 36), "why").ok()) << "nine in ten";
  EXPECT_FALSE(guard.tripped());
  const absl::Status status = guard.Check(LearnerStep(3), Groups(4, 37), "CUDA out of memory");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << "an exit code that is final";
  EXPECT_THAT(std::string(status.message()), HasSubstr("37 of 40 samples of step 3"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA out of memory"));
  EXPECT_TRUE(guard.tripped());
}

TEST(UnscoredGuardTest, SmallStepsAreJudgedTogetherAndOnlyInARow) {
  UnscoredGuard guard;
  EXPECT_TRUE(guard.Check(LearnerStep(0), Groups(2, 20), "why").ok()) << "one bad prompt or two";
  EXPECT_TRUE(guard.Check(LearnerStep(1), Groups(2, 0), "why").ok());
  EXPECT_TRUE(guard.Check(LearnerStep(2), Groups(2, 20), "why").ok());
  EXPECT_FALSE(guard.Check(LearnerStep(3), Groups(2, 20), "why").ok());
}

// A dead shard of the buffer takes the heads of a step's groups, and nobody failed to score.
// Promise: No plan waits for stored latents.
TEST(UnscoredGuardTest, SamplesWhoseHeadWasLostAreNotThoseOfARewardServer) {
  UnscoredGuard guard;
  EXPECT_TRUE(guard.Check(LearnerStep(0), Groups(4, 40), "", /*lost=*/40).ok());
  EXPECT_TRUE(guard.Check(LearnerStep(1), Groups(4, 38), "", /*lost=*/20).ok()) << "18 of 20";
  const absl::Status status = guard.Check(LearnerStep(2), Groups(4, 39), "why", /*lost=*/20);
  EXPECT_THAT(std::string(status.message()), HasSubstr("19 of 20 samples of step 2"));
}

}  // namespace
}  // namespace oxbow::learner
