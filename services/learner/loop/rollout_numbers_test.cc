// SPDX-License-Identifier: Apache-2.0
// The cost of sampling, as the groups themselves tell it.
#include "services/learner/loop/rollout_numbers.h"

#include <gtest/gtest.h>

namespace oxbow::learner {
namespace {

// Ten steps, of which steps [first, end) are stochastic.
v1::Trajectory SampleOf(int first, int end) {
  v1::Trajectory sample;
  for (int i = 0; i < 10; ++i) sample.add_sde(i >= first && i < end);
  return sample;
}

TEST(StepsSampledTest, AFreshSampleTakesAllStepsUpToTheWindowsEndAndACompressedRest) {
  const v1::Trajectory fresh = SampleOf(2, 4);
  EXPECT_EQ(StepsSampled(fresh, 1), 10);
  EXPECT_EQ(StepsSampled(fresh, .5), 4 + 2);  // 7 levels, of which 3 stay.
  EXPECT_EQ(StepsSampled(SampleOf(0, 9), .5), 10);
}

// Promise: Compressed steps change no trained transition.
TEST(StepsSampledTest, AReplayedSampleTakesThoseOfItsTail) {
  v1::Trajectory whole = SampleOf(2, 4);
  whole.set_replayed(true);
  whole.set_kept_steps(4);
  EXPECT_EQ(StepsSampled(whole, 1), 6);
  EXPECT_EQ(StepsSampled(whole, .5), 2);
  v1::Trajectory cut = whole;  // Its tail has a stochastic step.
  cut.set_kept_steps(3);
  EXPECT_EQ(StepsSampled(cut, .5), 1 + 2);
  v1::Trajectory image = SampleOf(0, 0);  // A stored picture: nothing is sampled.
  image.set_replayed(true);
  image.set_kept_steps(10);
  EXPECT_EQ(StepsSampled(image, .5), 0);
}

TEST(SampledForTest, StepsAreThoseTakenAndATreeSharesThem) {
  v1::Group group;
  for (int member = 0; member < 4; ++member) *group.add_trajectories() = SampleOf(0, 10);
  group.mutable_trajectories(3)->set_replayed(true);
  group.mutable_trajectories(3)->set_kept_steps(4);
  Sampled sum = SampledFor(group, {.group_size = 4});
  EXPECT_EQ(sum.samples, 4);
  EXPECT_EQ(sum.steps, 3 * 10 + 6);
  sum += SampledFor(group, {.group_size = 4});
  EXPECT_EQ(sum.samples, 8);
  EXPECT_EQ(sum.steps, 72);
  group.mutable_trajectories(3)->set_replayed(false);
  const flow::SplitTree tree = {.steps = {0, 4}, .width = 2};
  EXPECT_EQ(SampledFor(group, {.splits = tree, .group_size = 4}).steps, 1 + 2 * 4 + 4 * 5);
}

TEST(MeasureProductionTest, AFreshSampleOfTwoVersionsWasInFlight) {
  std::vector<ReceivedGroup> received(1);
  for (const bool replayed : {false, false, true}) {
    v1::Trajectory& sample = *received[0].group.add_trajectories();
    sample.set_replayed(replayed);
    sample.add_behaviour_version(4);
    sample.add_behaviour_version(replayed ? 8 : 4);
  }
  std::map<std::string, double> numbers;
  MeasureProduction(received, numbers);
  EXPECT_EQ(numbers.at("rollout/in_flight_share"), 0);
  received[0].group.mutable_trajectories(1)->set_behaviour_version(1, 8);
  MeasureProduction(received, numbers);
  EXPECT_EQ(numbers.at("rollout/in_flight_share"), .5);
}

}  // namespace
}  // namespace oxbow::learner
