// SPDX-License-Identifier: Apache-2.0
#include "core/reward/prompt_bootstrap.h"

#include <cmath>

#include "base/philox.h"
#include "base/statistics.h"
#include "gtest/gtest.h"

namespace oxbow::reward {
namespace {

std::vector<double> Normals(uint64_t seed, int count, double mean) {
  RandomStream random({.seed = seed});
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(mean + random.NextNormal());
  return values;
}

TEST(PromptBootstrapTest, AConstantHasNoInterval) {
  const MeanInterval interval = BootstrapMean({{0.5, 0.5, 0.5}, {0.25}}, 1);
  EXPECT_DOUBLE_EQ(interval.mean, 0.375);
  EXPECT_DOUBLE_EQ(interval.low, 0.375);
  EXPECT_DOUBLE_EQ(interval.high, 0.375);
}

// For many values the interval is that of the normal distribution: 1.96 standard errors.
TEST(PromptBootstrapTest, TheIntervalIsAboutTwoStandardErrorsWide) {
  const MeanInterval interval = BootstrapMean({Normals(3, 400, 2)}, 1);
  EXPECT_NEAR(interval.high - interval.low, 2 * 1.96 / 20, 0.02);
  EXPECT_NEAR((interval.low + interval.high) / 2, interval.mean, 0.01);
}

// 95 of 100 intervals should hold the truth; 300 of them leave a standard error of 1.3 %.
// Promise: Numbers of a report are those of its pictures.
TEST(PromptBootstrapTest, MostIntervalsHoldTheTruth) {
  int hold = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const MeanInterval interval = BootstrapMean({Normals(seed, 60, 0)}, seed, 400);
    hold += interval.low <= 0 && 0 <= interval.high;
  }
  EXPECT_GT(hold, 268);
  EXPECT_LE(hold, 297);
}

TEST(PromptBootstrapTest, GroupsCountTheSameWhateverTheirSize) {
  const std::vector<double> few = Normals(1, 10, 0), many = Normals(2, 1000, 4);
  const MeanInterval interval = BootstrapMean({few, many}, 5);
  const double mean = (BootstrapMean({few}, 5).mean + BootstrapMean({many}, 5).mean) / 2;
  EXPECT_DOUBLE_EQ(interval.mean, mean);
  // The error of the small group, halved, is all that counts.
  const double error = StandardDeviation(few, 0) / std::sqrt(10);
  EXPECT_NEAR((interval.high - interval.low) / (2 * 1.96 * 0.5 * error), 1, 0.1);
}

TEST(PromptBootstrapTest, TheSeedDecidesAndScaleAndShiftCarryOver) {
  const std::vector<double> values = Normals(9, 50, 1);
  std::vector<double> scaled;
  for (const double value : values) scaled.push_back(100 * value + 3);
  const MeanInterval one = BootstrapMean({values}, 7), again = BootstrapMean({values}, 7);
  EXPECT_EQ(one.low, again.low);
  EXPECT_NE(one.low, BootstrapMean({values}, 8).low);
  EXPECT_NEAR(BootstrapMean({scaled}, 7).low, 100 * one.low + 3, 1e-9);
}

}  // namespace
}  // namespace oxbow::reward
