// SPDX-License-Identifier: Apache-2.0
#include "run/rewards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oxbow::run {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

v1::RewardConfig Config() {
  v1::RewardConfig config;
  config.add_terms()->set_name("ocr");
  config.mutable_terms(0)->set_weight(2);
  config.add_terms()->set_name("taste");
  config.mutable_terms(1)->set_weight(-0.5);
  config.add_observed("strict");
  return config;
}

TEST(RewardsTest, ObservedRewardsAreScoredButNotTrainedOn) {
  EXPECT_THAT(RewardNames(Config()), ElementsAre("strict", "ocr", "taste"));
  EXPECT_TRUE(IsTerm(Config(), "ocr"));
  EXPECT_FALSE(IsTerm(Config(), "strict"));
}

// Promise: Only JPEG changes pictures on their way.
TEST(RewardsTest, OnlyJpegMakesAnotherReward) {
  EXPECT_EQ(IdentityVia(v1::PICTURE_TRANSPORT_UNSPECIFIED, "a"), "a");
  EXPECT_EQ(IdentityVia(v1::PICTURE_TRANSPORT_RAW, "a"), "a");
  EXPECT_EQ(IdentityVia(v1::PICTURE_TRANSPORT_PNG, "a"), "a");
  EXPECT_EQ(IdentityVia(v1::PICTURE_TRANSPORT_JPEG, "a"), "a; jpeg q95");
  EXPECT_EQ(IdentityVia(v1::PICTURE_TRANSPORT_JPEG, ""), "");
}

TEST(RewardsTest, EveryRewardIsInOnePlace) {
  v1::RewardConfig config = Config();
  EXPECT_THAT(OwnRewards(config), ElementsAre("strict", "ocr", "taste"));
  config.add_endpoints("scores:7070");
  EXPECT_THAT(OwnRewards(config), ElementsAre());
  config.add_scorers()->set_name("taste");
  config.mutable_scorers(0)->set_model("models/taste");
  EXPECT_THAT(OwnRewards(config), ElementsAre("taste"));
  EXPECT_EQ(ScorerOf(config, "taste").model(), "models/taste");
  EXPECT_EQ(ScorerOf(config, "ocr").name(), "ocr");
}

// Promise: Rewards may be spread over servers.
TEST(RewardsTest, OnlyOwnServersAreAskedForARewardWithAnEntry) {
  v1::RewardConfig config = Config();
  config.add_endpoints("scores:7070");
  config.add_endpoints("more:7070");
  EXPECT_THAT(RewardsNotAsked(config, {"scores:7070", "more:7070", "own:1"}), IsEmpty());
  config.add_scorers()->set_name("taste");
  EXPECT_THAT(RewardsNotAsked(config, {"scores:7070", "more:7070", "own:1"}),
              ElementsAre(Pair("more:7070", ElementsAre("taste")),
                          Pair("scores:7070", ElementsAre("taste"))));
  // A server of the run's file may be listed in it, for processes that are started one by one.
  EXPECT_THAT(RewardsNotAsked(config, {"scores:7070", "more:7070"}), IsEmpty());
}

TEST(RewardsTest, TheRewardIsTheWeightedSumOfTheTermsAlone) {
  EXPECT_EQ(WeightedReward(Config(), {{"ocr", 1}, {"taste", 4}, {"strict", 100}}), 0);
  EXPECT_EQ(WeightedReward(Config(), {{"ocr", 0.5}, {"taste", 0}}), 1);
}

TEST(RewardsTest, AnImageWithFullScoresHasTheFullReward) {
  EXPECT_EQ(FullReward(Config()), 1.5);
  EXPECT_EQ(WeightedReward(Config(), {{"ocr", 1}, {"taste", 1}}), FullReward(Config()));
}

// Promise: An observed reward that fails touches nothing else.
TEST(RewardsTest, AnObservedRewardThatFailedIsCountedWhereTheSampleIsScored) {
  v1::Group group;
  for (int i = 0; i < 4; ++i) group.add_trajectories()->add_rewards()->set_name("ocr");
  group.mutable_trajectories(0)->add_rewards()->set_name("strict");
  group.mutable_trajectories(1)->set_reward_failed(true);
  std::map<std::string, uint64_t> failures;
  CountObservedFailures(Config(), group, failures);
  EXPECT_THAT(failures, ElementsAre(Pair("strict", 2)));
}

TEST(RewardsDeathTest, AMissingScoreIsNeverAZero) {
  EXPECT_DEATH(WeightedReward(Config(), {{"ocr", 1}}), "no score for taste");
}

}  // namespace
}  // namespace oxbow::run
