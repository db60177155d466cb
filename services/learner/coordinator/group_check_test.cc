// SPDX-License-Identifier: Apache-2.0
// Numbers of a group that no run has: they are refused, never wrapped around.
#include "services/learner/coordinator/group_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "io/picture_file.h"

namespace oxbow::learner {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 3;
constexpr uint32_t kHuge[] = {uint32_t{1} << 31, std::numeric_limits<uint32_t>::max()};

GroupRules Rules() {
  return {.latent_shape = {1, 2, 2},
          .storage = v1::DTYPE_F32,
          .schedule_id = 77,
          .sde = {true, true, false},
          .group_size = 1};
}

v1::Group OneSample() {
  v1::Group group;
  v1::Trajectory& trajectory = *group.add_trajectories();
  trajectory.set_schedule_id(77);
  trajectory.mutable_latents()->set_dtype(v1::DTYPE_F32);
  for (const int64_t size : {kSteps + 1, 1, 2, 2}) trajectory.mutable_latents()->add_shape(size);
  for (int step = 0; step < kSteps; ++step) {
    trajectory.add_log_prob(-1);
    trajectory.add_sde(step < 2);
    trajectory.add_behaviour_version(0);
  }
  return group;
}

TEST(GroupCheckTest, AFirstLatentBeyondTheRunIsRefusedHoweverLargeItIs) {
  ASSERT_TRUE(CheckHeader(OneSample(), Rules()).ok());
  for (const uint32_t huge : kHuge) {
    v1::Group group = OneSample();
    group.mutable_trajectories(0)->set_first_latent(huge);
    group.mutable_trajectories(0)->mutable_latents()->set_shape(0, kSteps + 2);
    EXPECT_THAT(CheckHeader(group, Rules()).message(), HasSubstr("first_latent is beyond step T"));
  }
}

// Promise: Foreign bytes crash no process.
TEST(GroupCheckTest, KeptStepsBeyondTheRunAreRefusedHoweverManyTheyAre) {
  for (const uint32_t huge : kHuge) {
    v1::Group group = OneSample();
    group.mutable_trajectories(0)->set_replayed(true);
    group.mutable_trajectories(0)->set_kept_steps(huge);
    EXPECT_THAT(CheckHeader(group, Rules()).message(), HasSubstr("keeps"));
    EXPECT_TRUE(BehaviourVersions(group).empty());
  }
}

// A worker sends one picture of a group, which is small.
// Promise: Memory is bounded.
TEST(GroupCheckTest, PicturesOfAGroupHaveALimit) {
  v1::Group group = OneSample();
  group.mutable_trajectories(0)->set_picture(std::string(io::kPreviewBytesMax, 'x'));
  EXPECT_TRUE(CheckHeader(group, Rules()).ok());
  *group.add_trajectories() = group.trajectories(0);
  group.mutable_trajectories(1)->set_sample(1);
  GroupRules rules = Rules();
  rules.group_size = 2;
  EXPECT_THAT(CheckHeader(group, rules).message(), HasSubstr("pictures of the group"));
}

// Promise: A step belongs to the weights that took it.
TEST(GroupCheckTest, WeightsChangeBetweenStepsOnlyInFlightAndOnlyForward) {
  const auto with = [](std::vector<uint64_t> versions, bool in_flight) {
    v1::Group group = OneSample();
    group.mutable_trajectories(0)->mutable_behaviour_version()->Assign(versions.begin(),
                                                                       versions.end());
    GroupRules rules = Rules();
    rules.in_flight_updates = in_flight;
    return std::string(CheckHeader(group, rules).message());
  };
  EXPECT_THAT(with({4, 4, 8}, false), HasSubstr("weights changed at step 2 from version 4 to 8"));
  EXPECT_EQ(with({4, 4, 8}, true), "");
  EXPECT_EQ(with({4, 8, 12}, true), "");
  EXPECT_THAT(with({8, 4, 4}, true), HasSubstr("weights changed at step 1 from version 8 to 4"));
  EXPECT_EQ(with({4, 4, 4}, false), "");
}

// A group is within the budget only if its oldest step is.
TEST(GroupCheckTest, EveryVersionOfAGroupIsSeen) {
  v1::Group group = OneSample();
  group.mutable_trajectories(0)->set_behaviour_version(2, 12);
  EXPECT_EQ(BehaviourVersions(group), (std::vector{PolicyVersion(0), PolicyVersion(12)}));
  group.mutable_trajectories(0)->set_replayed(true);
  group.mutable_trajectories(0)->set_kept_steps(2);
  EXPECT_EQ(BehaviourVersions(group), (std::vector{PolicyVersion(12)}));
}

// Promise: An anchor holds every method.
TEST(GroupCheckTest, WhatTrainingNeedsBeyondTheTransitionsMustBeThere) {
  GroupRules rules = Rules();
  v1::Group group = OneSample();
  v1::Trajectory& sample = *group.mutable_trajectories(0);
  sample.mutable_latents()->set_shape(0, kSteps);  // x_0 to x_2, whose steps are stochastic.
  EXPECT_TRUE(CheckHeader(group, rules).ok());
  rules.sent = flow::SentLatents::kToTheEnd;
  EXPECT_THAT(CheckHeader(group, rules).message(),
              HasSubstr("holds x_0 to x_2, training needs x_0 to x_3"));
  sample.mutable_latents()->set_shape(0, kSteps + 1);
  EXPECT_TRUE(CheckHeader(group, rules).ok());
}

// Promise: An anchor holds every method.
TEST(GroupCheckTest, ATailMayBeLeftOutOnlyWhereTrainingDoesNotNeedItsEnd) {
  GroupRules rules = Rules();
  v1::Group group = OneSample();
  v1::Trajectory& tail = *group.mutable_trajectories(0);
  tail.set_replayed(true);
  tail.set_kept_steps(2);
  tail.set_first_latent(2);
  tail.set_sde(0, false);
  tail.set_sde(1, false);
  tail.mutable_latents()->Clear();
  EXPECT_TRUE(CheckHeader(group, rules).ok()) << CheckHeader(group, rules);
  rules.sent = flow::SentLatents::kToTheEnd;
  EXPECT_FALSE(CheckHeader(group, rules).ok());
  tail.mutable_latents()->set_dtype(v1::DTYPE_F32);
  for (const int64_t size : {2, 1, 2, 2}) tail.mutable_latents()->add_shape(size);  // x_2, x_3
  EXPECT_TRUE(CheckHeader(group, rules).ok()) << CheckHeader(group, rules);
  tail.mutable_latents()->set_shape(0, 1);
  EXPECT_THAT(CheckHeader(group, rules).message(), HasSubstr("holds x_2 to x_2, training needs"));
}

}  // namespace
}  // namespace oxbow::learner
