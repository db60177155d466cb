// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rewards/preference_rewards.h"

namespace oxbow::rewards {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RankSharesTest, TheSmallestHasNoneAndTheLargestAllButOne) {
  EXPECT_THAT(RankShares({0.3, -2, 7, 0.4}), ElementsAre(0.25, 0, 0.75, 0.5));
  EXPECT_THAT(RankShares({5}), ElementsAre(0));
  EXPECT_THAT(RankShares({}), IsEmpty());
}

TEST(RankSharesTest, EqualValuesShareTheMeanOfTheirRanks) {
  EXPECT_THAT(RankShares({1, 1}), ElementsAre(0.25, 0.25));
  EXPECT_THAT(RankShares({2, 1, 2, 2}), ElementsAre(0.5, 0, 0.5, 0.5));
}

TEST(RankSharesTest, NeitherOrderNorScaleMatters) {
  RandomStream random({.seed = 17});
  for (int round = 0; round < 200; ++round) {
    std::vector<double> values;
    for (uint64_t i = 0; i <= random.NextBelow(9); ++i) {
      values.push_back(static_cast<double>(random.NextBelow(5)));
    }
    std::vector<double> shares = RankShares(values);
    std::vector<double> scaled;
    for (const double value : values) scaled.push_back(std::exp(value) * 100 - 7);
    EXPECT_EQ(RankShares(scaled), shares);
    double sum = 0;
    for (const double share : shares) sum += share;
    EXPECT_NEAR(sum, static_cast<double>(values.size() - 1) / 2, 1e-9);
    std::reverse(values.begin(), values.end());
    std::reverse(shares.begin(), shares.end());
    EXPECT_EQ(RankShares(values), shares);
  }
}

}  // namespace
}  // namespace oxbow::rewards
