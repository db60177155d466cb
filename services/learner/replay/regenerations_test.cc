// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {
namespace {

// Fresh samples with these rewards, and a replayed one whose first picture had `stored`.
v1::Group Mixed(const std::vector<double>& fresh, double stored, double again,
                bool reward_failed = false) {
  v1::Group group;
  for (const double reward : fresh) group.add_trajectories()->set_reward(reward);
  v1::Trajectory& replayed = *group.add_trajectories();
  replayed.set_replayed(true);
  replayed.set_entry_id(7);
  replayed.set_stored_reward(stored);
  replayed.set_reward(again);
  replayed.set_reward_failed(reward_failed);
  return group;
}

bool Failed(const v1::Group& group) { return RegenerationOf(group).value().failed; }

// Promise: A success that new tails destroy leaves. The new reward of a replayed head is written
// back, and after `replay.failures_max` failed regenerations in a row the entry leaves. Both are
// part of the committed step and of checkpoints.
TEST(RegenerationsTest, ALostSuccessFailedUnlessItStillBeatsItsGroup) {
  EXPECT_TRUE(Failed(Mixed({0, 0, 0}, 1, 0))) << "a dead group";
  EXPECT_TRUE(Failed(Mixed({0, 1, 0}, 1, 0))) << "the policy is pushed away from it";
  EXPECT_FALSE(Failed(Mixed({0, 0, 0}, 1, 1)));
  EXPECT_FALSE(Failed(Mixed({1, 1, 1}, 1, 1))) << "as good as ever; its prompt is solved";
  EXPECT_FALSE(Failed(Mixed({.2, .5, .3}, .9, .8))) << "a little worse, and still the best";
  EXPECT_FALSE(Failed(Mixed({.2, .5, .3}, 0, .1))) << "better than it ever was";
}

TEST(RegenerationsTest, NamesTheEntryAndItsNewReward) {
  const auto made = RegenerationOf(Mixed({0, 1}, 1, .25));
  EXPECT_EQ(made->entry, EntryId(7));
  EXPECT_EQ(made->reward, .25);
}

TEST(RegenerationsTest, WhatHasNoScoreTellsNothing) {
  EXPECT_FALSE(RegenerationOf(Mixed({0, 1}, 1, 0, /*reward_failed=*/true)).has_value());
  v1::Group fresh = Mixed({0, 1}, 1, 0);
  fresh.mutable_trajectories()->RemoveLast();
  EXPECT_FALSE(RegenerationOf(fresh).has_value());
}

TEST(RegenerationsTest, TheMeanOfBranchesCounts) {
  v1::Group group = Mixed({0, 1}, 1, 1);
  *group.add_trajectories() = group.trajectories(2);
  group.mutable_trajectories(3)->set_reward(0.5);
  EXPECT_EQ(RegenerationOf(group)->reward, .75);
  EXPECT_FALSE(Failed(group));
  group.mutable_trajectories(2)->set_reward(0);
  EXPECT_TRUE(Failed(group)) << ".25, where the fresh ones have .5";
  EXPECT_EQ(FreshMean(group), .5);
}

}  // namespace
}  // namespace oxbow::learner
