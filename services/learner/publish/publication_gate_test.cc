// SPDX-License-Identifier: Apache-2.0
#include "services/learner/publish/publication_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oxbow::learner {
namespace {

using ::testing::HasSubstr;

bool Admits(PublicationGate& gate, uint64_t step) { return *gate.Admit(LearnerStep(step)); }

TEST(PublicationGateTest, WithoutAFloorEverythingGoesOut) {
  PublicationGate gate({.reward_floor = 0});
  gate.Evaluated(1);
  gate.Evaluated(-5);
  for (uint64_t step = 0; step < 5; ++step) EXPECT_TRUE(Admits(gate, step));
}

// Promise: Bad weights are not published.
TEST(PublicationGateTest, CollapsedWeightsAreWithheldWhileTheBudgetLastsAndThenTheRunStops) {
  PublicationGate gate({.reward_floor = 0.5, .staleness_max = 2});
  EXPECT_TRUE(Admits(gate, 0));
  gate.Evaluated(0.8);
  EXPECT_TRUE(Admits(gate, 10));
  gate.Evaluated(0.39);
  EXPECT_FALSE(Admits(gate, 11));  // Step 11 may be sampled with the weights of step 10,
  EXPECT_FALSE(Admits(gate, 12));  // and so may step 12,
  const auto stop = gate.Admit(LearnerStep(13));  // but not step 13: it would never come.
  EXPECT_EQ(stop.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(stop.status().ToString(), HasSubstr("reward 0.39, best 0.8"));
}

TEST(PublicationGateTest, OnPolicyRunsStopAtOnce) {
  PublicationGate gate({.reward_floor = 0.5, .staleness_max = 0});
  EXPECT_TRUE(Admits(gate, 3));
  gate.Evaluated(1);
  gate.Evaluated(0.1);
  EXPECT_FALSE(gate.Admit(LearnerStep(4)).ok());
}

TEST(PublicationGateTest, ARewardThatRecoversOpensIt) {
  PublicationGate gate({.reward_floor = 0.5, .staleness_max = 4});
  EXPECT_TRUE(Admits(gate, 0));
  gate.Evaluated(1);
  gate.Evaluated(0.4);
  EXPECT_FALSE(Admits(gate, 1));
  gate.Evaluated(0.5);
  EXPECT_TRUE(Admits(gate, 2));
}

TEST(PublicationGateTest, TheFirstWeightsAlwaysGoOutAndTheBestOutlivesAResume) {
  PublicationGate gate({.reward_floor = 0.5, .best_reward = 0.9});
  gate.Evaluated(0.2);
  EXPECT_TRUE(Admits(gate, 7));
  EXPECT_FALSE(gate.Admit(LearnerStep(8)).ok());
  EXPECT_EQ(gate.best_reward(), 0.9);
}

TEST(PublicationGateTest, RewardsBelowZeroHaveNoFraction) {
  PublicationGate gate({.reward_floor = 0.5});
  EXPECT_TRUE(Admits(gate, 0));
  gate.Evaluated(-1);
  gate.Evaluated(-9);
  EXPECT_TRUE(Admits(gate, 1));
}

}  // namespace
}  // namespace oxbow::learner
