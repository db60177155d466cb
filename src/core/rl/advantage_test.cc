// SPDX-License-Identifier: Apache-2.0
#include "core/rl/advantage.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/golden/golden.h"

namespace oxbow::rl {
namespace {

using ::oxbow::testing::Golden;
using ::oxbow::testing::kGoldenTolerance;
using ::testing::DoubleNear;
using ::testing::Pointwise;
using Rewards = std::vector<std::vector<std::optional<double>>>;

std::vector<double> Flat(const Rewards& rewards, const AdvantageOptions& options) {
  std::vector<double> all;
  for (const auto& group : ComputeAdvantages(rewards, options)) {
    all.insert(all.end(), group.advantages.begin(), group.advantages.end());
  }
  return all;
}

TEST(AdvantageTest, Golden) {
  for (const auto& r : Golden()["advantage"]) {
    Rewards rewards(4);
    for (size_t i = 0; i < r["rewards"].size(); ++i) {
      rewards[r["groups"][i].get<size_t>()].push_back(r["rewards"][i].get<double>());
    }
    const auto expect = [&](const AdvantageOptions& options, const char* name) {
      EXPECT_THAT(Flat(rewards, options),
                  Pointwise(DoubleNear(kGoldenTolerance), r[name].get<std::vector<double>>()))
          << name;
    };
    expect({}, "flow_grpo_group");
    expect({.std = AdvantageStd::kGlobal}, "flow_grpo_global");
    expect({.ddof = 1, .epsilon = 1e-8}, "ddof1");
  }
}

TEST(AdvantageTest, FailedRewardsAreNoPartOfTheStatistics) {
  const auto with = ComputeAdvantages({{.2, std::nullopt, .9, .5}}, {})[0];
  const auto without = ComputeAdvantages({{.2, .9, .5}}, {})[0];
  EXPECT_EQ(with.advantages, (std::vector<double>{without.advantages[0], 0, without.advantages[1],
                                                  without.advantages[2]}));
}

TEST(AdvantageTest, EqualRewardsHaveNoVarianceEvenWhereTheMeanRounds) {
  const auto group = ComputeAdvantages({{.1, .1, .1, .1, .1, .1, .1}}, {})[0];
  EXPECT_FALSE(group.has_variance);
  for (const double advantage : group.advantages) EXPECT_EQ(advantage, 0);
  EXPECT_FALSE(ComputeAdvantages({{.7, std::nullopt}}, {})[0].has_variance);
}

TEST(AdvantageTest, ClipsLoneSuccesses) {
  std::vector<std::optional<double>> rewards(40, 0.0);
  rewards[0] = 1;
  EXPECT_EQ(ComputeAdvantages({rewards}, {})[0].advantages[0], 5);
  EXPECT_NEAR(ComputeAdvantages({rewards}, {.std = AdvantageStd::kNone})[0].advantages[0], .975,
              1e-12);
}

// Hand-computed from R = .2, .5, .9, .9: mean .625, population std .294745653064.
TEST(AdvantageTest, DivisorsAsPublished) {
  const Rewards rewards = {{.2, .5, .9, .9}};
  const auto first = [&](AdvantageDivisor divisor, double epsilon) {
    return Flat(rewards, {.divisor = divisor, .epsilon = epsilon})[0];
  };
  EXPECT_NEAR(first(AdvantageDivisor::kFloor, 1e-6), -1.44192118046, 1e-11);
  EXPECT_NEAR(first(AdvantageDivisor::kFloor, .5), -.85, 1e-12);
  EXPECT_NEAR(first(AdvantageDivisor::kRoot, .01), -.425 / std::sqrt(.086875 + .01), 1e-12);
  EXPECT_NEAR(first(AdvantageDivisor::kSoftFloor, .5), -5 * std::tanh(.17), 1e-12);
  const Rewards apart = {{0, 0, 0, 0, 0, 0, 0, 1}};  // A of the last is 2.6458.
  const auto soft =
      Flat(apart, {.divisor = AdvantageDivisor::kSoftFloor, .epsilon = 1e-6, .clip = 3});
  EXPECT_NEAR(soft.back(), 3 * std::tanh(2.6457513110645906 / 3), 1e-12);
}

// Two rewards on scales a thousand times apart, weights 1 and 2.
class MixedRewardsTest : public ::testing::Test {
 protected:
  const Rewards small_ = {{0, 1, 0, 1}, {1, 1, 1, 1}};
  const Rewards large_ = {{0, 0, 1000, 1000}, {500, 500, 500, 500}};
  const Rewards total_ = {{0, 1, 2000, 2001}, {1001, 1001, 1001, 1001}};
  const std::vector<WeightedRewards> terms_ = {{1, small_}, {2, large_}};
  const AdvantageOptions options_{.epsilon = 0, .clip = 100};
};

TEST_F(MixedRewardsTest, TheSumIsRuledByTheLargeOne) {
  const auto groups = MixAdvantages(RewardMix::kSum, total_, terms_, options_);
  EXPECT_EQ(groups[0].advantages, ComputeAdvantages(total_, options_)[0].advantages);
  EXPECT_NEAR(groups[0].advantages[1], groups[0].advantages[0], 2e-3);
}

TEST_F(MixedRewardsTest, EachByItselfCountsByItsWeight) {
  const auto groups = MixAdvantages(RewardMix::kEach, total_, terms_, options_);
  EXPECT_EQ(groups[0].advantages, (std::vector<double>{-3, -1, 1, 3}));
  EXPECT_EQ(groups[1].advantages, (std::vector<double>{0, 0, 0, 0}));
  EXPECT_FALSE(groups[1].has_variance);
  EXPECT_DOUBLE_EQ(groups[0].mean, 1000.5) << "statistics are of the total";
}

TEST_F(MixedRewardsTest, GdpoNormalisesTheSumOverTheWholeStep) {
  const auto groups = MixAdvantages(RewardMix::kGdpo, total_, terms_, options_);
  const double std = std::sqrt((9 + 1 + 1 + 9) / 8.);  // The second group's zeros count.
  EXPECT_NEAR(groups[0].advantages[3], 3 / std, 1e-12);
  EXPECT_NEAR(groups[0].advantages[1], -1 / std, 1e-12);
  EXPECT_EQ(groups[1].advantages[0], 0) << "masked, not centred";
}

TEST_F(MixedRewardsTest, OneRewardThatDiffersIsASignalThoughTheSumIsEqual) {
  const std::vector<WeightedRewards> opposed = {{1, {{0., 1.}}}, {1, {{1., 0.}}}};
  EXPECT_TRUE(MixAdvantages(RewardMix::kEach, {{1., 1.}}, opposed, options_)[0].has_variance);
  EXPECT_FALSE(MixAdvantages(RewardMix::kSum, {{1., 1.}}, opposed, options_)[0].has_variance);
}

}  // namespace
}  // namespace oxbow::rl
