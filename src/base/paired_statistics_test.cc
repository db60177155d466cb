// SPDX-License-Identifier: Apache-2.0
#include "base/paired_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"

namespace oxbow {
namespace {

// scipy 1.17.1: permutation_test((d,), mean, permutation_type="samples", n_resamples=inf), which
// counts every assignment of signs; the fractions are counts by itertools.product.
TEST(PairedStatisticsTest, GoldenSignFlips) {
  EXPECT_DOUBLE_EQ(SignFlipP({1, 2, 3, -1}), 6. / 16);
  EXPECT_DOUBLE_EQ(SignFlipP({0.5, 0.25, -0.125, 1, 0.75, 0.5, -0.25, 0.625}), 12. / 256);
  EXPECT_DOUBLE_EQ(SignFlipP({0, 0, 1}), 1);
  EXPECT_DOUBLE_EQ(SignFlipP({4, 2, -7, 1, -3, 6, 2, 2, 5, -1, 3, 0}), 1300. / 4096);
}

TEST(PairedStatisticsTest, PairsThatAllAgreeHaveTheSmallestP) {
  EXPECT_DOUBLE_EQ(SignFlipP({1, 2, 3, 4, 5, 6, 7, 8}), 2. / 256);
  EXPECT_DOUBLE_EQ(SignFlipP({-1, -2, -3, -4, -5, -6, -7, -8}), 2. / 256) << "two-sided";
  EXPECT_DOUBLE_EQ(SignFlipP({0.1, 0.1, 0.1}), 2. / 8) << "rounding is no difference";
  EXPECT_EQ(SignFlipP({}), 1);
  EXPECT_EQ(SignFlipP({0, 0}), 1);
}

TEST(PairedStatisticsTest, DrawnFlipsAgreeWithCountedOnes) {
  // 22 differences are drawn. Their sum is normal nearly: mean .5, unit steps.
  std::vector<double> differences;
  for (int i = 0; i < 22; ++i) differences.push_back(i % 11 < 8 ? 1 : -1);
  // |sum| >= 10 of 22 signs: 2 sum_{k >= 16} C(22, k) / 2^22.
  EXPECT_NEAR(SignFlipP(differences), 0.0524778, 4 * std::sqrt(0.0525 * 0.9475 / 1e5));
  EXPECT_EQ(SignFlipP(differences), SignFlipP(differences)) << "repeatable";
}

TEST(PairedStatisticsTest, TheIntervalOfAMeanIsTheNormalOnes) {
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back(i);
  const auto interval = BootstrapInterval(
      values.size(), [&](const std::vector<size_t>& items) -> std::optional<double> {
        double sum = 0;
        for (const size_t item : items) sum += values[item];
        return sum / static_cast<double>(items.size());
      });
  ASSERT_TRUE(interval.has_value());
  EXPECT_DOUBLE_EQ(interval->ratio, 49.5);
  // 1.96 x 28.87 / 10, to 10 % with 2000 resamples.
  EXPECT_NEAR(interval->high - interval->ratio, 5.66, 0.6);
  EXPECT_NEAR(interval->ratio - interval->low, 5.66, 0.6);
}

// For pairs of normal values with known means, the interval of their ratio covers the true one
// about as often as it says. With 12 pairs a percentile bootstrap covers a little less than 95 %.
TEST(PairedStatisticsTest, IntervalsCoverTheTruth) {
  RandomStream random({.seed = 5, .step = kTaskData});
  int covered = 0;
  constexpr int kTrials = 200;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> above(12);
    std::vector<double> below(12);
    for (size_t i = 0; i < above.size(); ++i) {
      above[i] = 20 + 3 * random.NextNormal();
      below[i] = 80 + 3 * random.NextNormal();
    }
    const auto interval = BootstrapInterval(
        above.size(),
        [&](const std::vector<size_t>& items) -> std::optional<double> {
          double over = 0;
          double under = 0;
          for (const size_t item : items) {
            over += above[item];
            under += below[item];
          }
          return over / under;
        },
        static_cast<uint64_t>(trial), 400);
    ASSERT_TRUE(interval.has_value());
    covered += interval->low <= 0.25 && 0.25 <= interval->high ? 1 : 0;
  }
  EXPECT_GE(covered, kTrials * 0.86);
  EXPECT_LE(covered, kTrials * 0.99);
}

// numpy 2.4.6: least squares of cost over two constants, one for each recipe, and the covariate;
// slope 60.69534473.
TEST(PairedStatisticsTest, GoldenDifferencesAtEqualCovariates) {
  const std::vector<double> differences = DifferencesAtEqual({{30, 45, 0.1, 0.4},
                                                              {25, 30, 0.05, 0.1},
                                                              {40, 50, 0.3, 0.45},
                                                              {35, 41, 0.2, 0.3},
                                                              {20, 33, 0, 0.2},
                                                              {28, 36, 0.12, 0.25}});
  const std::vector<double> expected = {3.20860342, -1.96523276, -0.89569829,
                                        0.06953447, -0.86093105, -0.10960519};
  ASSERT_EQ(differences.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(differences[i], expected[i], 1e-7);

  const std::vector<double> alike = DifferencesAtEqual({{3, 4, 0.5, 0.5}, {7, 5, 0.5, 0.5}});
  EXPECT_EQ(alike, (std::vector<double>{-1, 2})) << "nothing to explain";
  EXPECT_TRUE(DifferencesAtEqual({}).empty());
}

TEST(PairedStatisticsTest, AStatisticWithoutAValueHasNoInterval) {
  EXPECT_FALSE(BootstrapInterval(3, [](const auto&) { return std::nullopt; }).has_value());
  EXPECT_FALSE(BootstrapInterval(0, [](const auto&) { return 1.0; }).has_value());
}

}  // namespace
}  // namespace oxbow
