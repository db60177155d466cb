// SPDX-License-Identifier: Apache-2.0
// The effect of a missing score on a group, by policy. Such a score is never counted as 0.
#include "services/rollout/group_delivery.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace oxbow::rollout {
namespace {

v1::RewardConfig Config(v1::OnRewardFailure on_failure) {
  v1::RewardConfig config;
  config.add_terms()->set_name("ocr");
  config.mutable_terms(0)->set_weight(2);
  config.add_terms()->set_name("taste");
  config.mutable_terms(1)->set_weight(-0.5);
  config.add_observed("strict");
  config.set_on_failure(on_failure);
  return config;
}

std::vector<absl::StatusOr<reward::Scores>> OneMissing() {
  return {reward::Scores{{"ocr", 1}, {"taste", 4}, {"strict", 100}},
          absl::InternalError("scorer broke"),
          reward::Scores{{"ocr", 0.5}, {"taste", 0}, {"strict", 0}}};
}

TEST(RewardStageTest, TheRewardIsTheWeightedSumOfItsTermsAlone) {
  std::vector<rl::Trajectory> samples(3);
  ASSERT_TRUE(
      ApplyScores(Config(v1::ON_REWARD_FAILURE_DROP_SAMPLE), false, OneMissing(), samples).ok());
  EXPECT_EQ(samples[0].reward, 0);  // 2 * 1 - 0.5 * 4
  EXPECT_EQ(samples[2].reward, 1);
  EXPECT_EQ(samples[0].rewards.at("strict"), 100);
  EXPECT_FALSE(samples[0].reward_failed);
  EXPECT_TRUE(samples[1].reward_failed);
  EXPECT_TRUE(samples[1].rewards.empty());
}

// Promise: An observed reward that fails touches nothing else.
TEST(RewardStageTest, AnObservedRewardThatFailedIsCountedAndDropsNothing) {
  for (const auto policy : {v1::ON_REWARD_FAILURE_FAIL, v1::ON_REWARD_FAILURE_DROP_SAMPLE,
                            v1::ON_REWARD_FAILURE_DROP_GROUP}) {
    std::vector<rl::Trajectory> samples(2);
    const auto unscored = ApplyScores(Config(policy), /*drops=*/false,
                                      {reward::Scores{{"ocr", 1}, {"taste", 4}},
                                       reward::Scores{{"ocr", 1}, {"taste", 0}, {"strict", 5}}},
                                      samples);
    ASSERT_TRUE(unscored.ok()) << unscored.status();
    EXPECT_EQ(unscored->samples, 0);
    EXPECT_EQ(unscored->observed.at("strict"), 1);
    EXPECT_EQ(samples[0].reward, 0);
    EXPECT_EQ(samples[1].reward, 2);
    EXPECT_FALSE(samples[0].reward_failed);
    EXPECT_FALSE(samples[0].rewards.contains("strict"));
  }
}

TEST(RewardStageTest, DropGroupMarksEverySample) {
  std::vector<rl::Trajectory> samples(3);
  ASSERT_TRUE(
      ApplyScores(Config(v1::ON_REWARD_FAILURE_DROP_GROUP), false, OneMissing(), samples).ok());
  for (const rl::Trajectory& sample : samples) EXPECT_TRUE(sample.reward_failed);
}

TEST(RewardStageTest, FailNamesTheSampleAndTheReason) {
  std::vector<rl::Trajectory> samples(3);
  samples[1].index = 1;
  const auto failed = ApplyScores(Config(v1::ON_REWARD_FAILURE_FAIL), false, OneMissing(), samples);
  EXPECT_TRUE(reward::IsUnscorable(failed.status()));
  EXPECT_EQ(failed.status().message(), "reward of sample 1: scorer broke");
}

// Promise: A picture that cannot be scored is drawn once. Where a reward server says that an image
// cannot be scored (INVALID_ARGUMENT), its sample is dropped at once with every
// `reward.on_failure`. Other answers without a score keep their tries.
TEST(RewardStageTest, AnImageThatCannotBeScoredIsDroppedAtOnceUnlessAnotherMayBeYet) {
  std::vector<rl::Trajectory> samples(3);
  auto scores = OneMissing();
  scores[1] = absl::InvalidArgumentError("no face");
  const auto unscored = ApplyScores(Config(v1::ON_REWARD_FAILURE_FAIL), false, scores, samples);
  ASSERT_TRUE(unscored.ok()) << unscored.status();
  EXPECT_EQ(unscored->samples, 1);
  EXPECT_EQ(unscored->reason.message(), "no face");
  EXPECT_TRUE(samples[1].reward_failed);
  EXPECT_FALSE(samples[0].reward_failed);
  scores[2] = absl::InternalError("scorer broke");
  EXPECT_EQ(
      ApplyScores(Config(v1::ON_REWARD_FAILURE_FAIL), false, scores, samples).status().message(),
      "reward of sample 0: scorer broke");
}

TEST(RewardStageTest, ALeaseThatDropsUnscoredSamplesKeepsTheOthers) {
  std::vector<rl::Trajectory> samples(3);
  const auto unscored =
      ApplyScores(Config(v1::ON_REWARD_FAILURE_FAIL), /*drops=*/true, OneMissing(), samples);
  ASSERT_TRUE(unscored.ok()) << unscored.status();
  EXPECT_EQ(unscored->samples, 1);
  EXPECT_TRUE(samples[1].reward_failed);
  EXPECT_FALSE(samples[0].reward_failed);
  EXPECT_FALSE(samples[2].reward_failed);
}

TEST(RewardStageTest, AnAbsentServerDropsNothing) {
  for (const auto policy : {v1::ON_REWARD_FAILURE_FAIL, v1::ON_REWARD_FAILURE_DROP_SAMPLE,
                            v1::ON_REWARD_FAILURE_DROP_GROUP}) {
    std::vector<rl::Trajectory> samples(3);
    auto scores = OneMissing();
    scores[2] = absl::UnavailableError("server is down");
    const auto applied = ApplyScores(Config(policy), /*drops=*/true, scores, samples);
    EXPECT_TRUE(absl::IsUnavailable(applied.status()));
    for (const rl::Trajectory& sample : samples) EXPECT_FALSE(sample.reward_failed);
  }
}

}  // namespace
}  // namespace oxbow::rollout
