// SPDX-License-Identifier: Apache-2.0
#include "base/statistics.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace oxbow
