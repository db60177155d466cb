#include "base/statistics.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace oxbow {
namespace {

TEST(StatisticsTest, NothingHasAMeanOfZeroAndNoSpread) {
  EXPECT_EQ(Mean({}), 0);
  EXPECT_EQ(StandardDeviation({}, 0), 0);
  EXPECT_EQ(StandardDeviation({7}, 1), 0) << "one value says nothing about the spread";
  EXPECT_EQ(Quantile<double>({}, 0.5), 0);
}

TEST(StatisticsTest, TheSpreadIsThatOfThePopulationOrOfASample) {
  EXPECT_EQ(Mean({1, 3, 5}), 3);
  EXPECT_DOUBLE_EQ(StandardDeviation({1, 3, 5}, 0), std::sqrt(8.0 / 3));
  EXPECT_DOUBLE_EQ(StandardDeviation({1, 3, 5}, 1), 2);
}

TEST(StatisticsTest, AQuantileIsOneOfTheValues) {
  const std::vector<double> values = {40, 10, 30, 20};
  EXPECT_EQ(Quantile(values, 0), 10);
  EXPECT_EQ(Quantile(values, 0.5), 30) << "the upper of the two in the middle";
  EXPECT_EQ(Quantile(values, 0.95), 40);
  EXPECT_EQ(Quantile(values, 7), 40);
  EXPECT_EQ(Quantile(std::vector<double>{5, 1, 3}, 0.5), 3);
}

// For two normal samples with known means, the interval covers the true ratio about as often as it
// says. With 12 values a side a percentile bootstrap covers a little less than 95 %.
TEST(StatisticsTest, IntervalsCoverTheTruth) {
  RandomStream random({.seed = 5, .step = kTaskData});
  const auto sample = [&](double mean) {
    std::vector<double> values(12);
    for (double& value : values) value = mean + 3 * random.NextNormal();
    return values;
  };
  int covered = 0;
  constexpr int kTrials = 200;
  for (int trial = 0; trial < kTrials; ++trial) {
    const RatioInterval interval = BootstrapRatio(sample(20), sample(80), trial, 400);
    EXPECT_LE(interval.low, interval.ratio);
    EXPECT_LE(interval.ratio, interval.high);
    covered += interval.low <= 0.25 && 0.25 <= interval.high ? 1 : 0;
  }
  EXPECT_GE(covered, kTrials * 0.86);
  EXPECT_LE(covered, kTrials * 0.99);
}

TEST(StatisticsTest, EqualValuesHaveAnIntervalOfNoWidth) {
  const RatioInterval interval = BootstrapRatio({30, 30, 30}, {150, 150}, 1);
  EXPECT_DOUBLE_EQ(interval.ratio, 0.2);
  EXPECT_DOUBLE_EQ(interval.low, 0.2);
  EXPECT_DOUBLE_EQ(interval.high, 0.2);
}

}  // namespace
}  // namespace oxbow
