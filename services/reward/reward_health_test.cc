// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "services/reward/reward_service.h"

namespace oxbow::reward {
namespace {

// Promise: Each reward has a health of its own. It is not serving while its server loads, and when
// its last batches gave no score at all through no fault of their callers. The first score ends
// that.

TEST(RewardHealthTest, NothingServesBeforeAllIsLoaded) {
  RewardHealth health({"a", "b"});
  for (const bool ready : {false, true}) {
    if (ready) health.Ready();
    for (const char* name : {"", "oxbow.v1.Reward", "oxbow.v1.Reward/a", "oxbow.v1.Reward/b"}) {
      EXPECT_EQ(health.Serves(name), ready) << name;
    }
    for (const char* name : {"a", "oxbow.v1.Reward/", "oxbow.v1.Reward/c", "oxbow.v1.Rewards"}) {
      EXPECT_EQ(health.Serves(name), std::nullopt) << name;
    }
  }
}

TEST(RewardHealthTest, ARewardThatGivesNoScoreAnyMoreIsBrokenUntilItGivesOne) {
  RewardHealth health({"a", "b"});
  health.Ready();
  EXPECT_TRUE(health.BatchScored("a", 0, 4));
  EXPECT_TRUE(health.BatchScored("a", 0, 4));
  EXPECT_TRUE(health.BatchScored("a", 1, 3));  // Not in a row.
  EXPECT_TRUE(health.BatchScored("a", 0, 1));
  EXPECT_TRUE(health.BatchScored("a", 0, 1));
  EXPECT_TRUE(health.BatchScored("a", 0, 0));  // Its caller's fault: says nothing of the reward.
  EXPECT_FALSE(health.BatchScored("a", 0, 1));
  EXPECT_FALSE(health.BatchScored("a", 0, 0));
  EXPECT_EQ(health.Serves("oxbow.v1.Reward/a"), false);
  EXPECT_EQ(health.Serves("oxbow.v1.Reward/b"), true);
  EXPECT_EQ(health.Serves(""), true);
  EXPECT_TRUE(health.BatchScored("a", 1, 0));
  EXPECT_EQ(health.Serves("oxbow.v1.Reward/a"), true);
}

}  // namespace
}  // namespace oxbow::reward
