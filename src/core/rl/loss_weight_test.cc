// SPDX-License-Identifier: Apache-2.0
#include "core/rl/loss_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "tests/golden/golden.h"

namespace oxbow::rl {
namespace {

using ::oxbow::testing::Golden;
using ::oxbow::testing::kGoldenTolerance;

constexpr double kCap = 2;

std::vector<double> Head(const nlohmann::json& values, size_t keep) {
  auto all = values.get<std::vector<double>>();
  all.resize(keep);
  return all;
}

TEST(CorrectionTest, GoldenWeights) {
  for (const auto& r : Golden()["sequence"]) {
    const auto weight =
        ComputeSequenceWeight(Head(r["lp_old"], r["keep"]), Head(r["lp_off"], r["keep"]), kCap);
    const double log_w = r["mean"]["log_w"];
    EXPECT_NEAR(weight.log_weight, log_w, kGoldenTolerance * std::max(1., std::abs(log_w)));
    EXPECT_NEAR(weight.weight, r["mean"]["w"], kGoldenTolerance * std::max(1., std::abs(log_w)));
  }
}

TEST(CorrectionTest, CapAndClamp) {
  const std::vector<double> old = {-1.40, -1.35, -1.20};
  const std::vector<double> off = {-1.401, -1.3492, -1.2035};
  EXPECT_NEAR(ComputeSequenceWeight(old, off, kCap).weight, 1.00370685345, 1e-11);
  const auto capped = ComputeSequenceWeight({90}, {0}, kCap);
  EXPECT_EQ(capped.weight, kCap);
  EXPECT_TRUE(capped.truncated);
  EXPECT_DOUBLE_EQ(ComputeSequenceWeight({0}, {90}, kCap).weight, std::exp(-20.));
  const auto broken = ComputeSequenceWeight({std::numeric_limits<double>::quiet_NaN()}, {0}, kCap);
  EXPECT_TRUE(broken.evict);
  EXPECT_EQ(broken.weight, 0);
}

TEST(CorrectionTest, EffectiveSampleSize) {
  EXPECT_DOUBLE_EQ(EffectiveSampleSize({1, 1, 1, 1}), 4);
  EXPECT_DOUBLE_EQ(EffectiveSampleSize({2, 0, 0}), 1);
  EXPECT_EQ(EffectiveSampleSize({}), 0);
}

// Two linear-Gaussian policies of D = 2 and T = 3 that differ by a constant drift in every step.
// Under the behaviour policy, the weight of sums over elements must turn the mean of x_T into that
// of the old policy; that of means, its D-th root, must give exp(-T D delta^2 / (8 S^2)) times the
// mean half-way between instead.
TEST(CorrectionTest, SumsWouldBeUnbiasedAndMeansAreOffByAKnownAmount) {
  constexpr uint64_t kSeed = 21;
  SCOPED_TRACE(kSeed);
  constexpr int kDims = 2, kSteps = 3, kSamples = 400'000;
  constexpr double kGain = 0.9, kScale = 0.7, kDrift = 0.3, kStart = 1;
  const auto end_mean = [&](double drift) {
    double mean = kStart;
    for (int i = 0; i < kSteps; ++i) mean = kGain * mean + drift;
    return mean;
  };
  constexpr double kNoCap = 1e9;
  RandomStream stream({.seed = kSeed});
  double by_sum = 0, by_mean = 0;
  for (int n = 0; n < kSamples; ++n) {
    std::vector<double> old(kSteps), off(kSteps);
    double x[kDims] = {kStart, kStart};
    for (int i = 0; i < kSteps; ++i) {
      for (double& value : x) {
        const double z = stream.NextNormal();
        const double next = kGain * value + kScale * z;  // The behaviour policy has no drift.
        const double error = (next - kGain * value - kDrift) / kScale;
        old[static_cast<size_t>(i)] += -0.5 * error * error / kDims;
        off[static_cast<size_t>(i)] += -0.5 * z * z / kDims;
        value = next;
      }
    }
    by_mean += ComputeSequenceWeight(old, off, kNoCap).weight * x[0] / kSamples;
    for (std::vector<double>* sums : {&old, &off}) {
      for (double& value : *sums) value *= kDims;
    }
    by_sum += ComputeSequenceWeight(old, off, kNoCap).weight * x[0] / kSamples;
  }
  const double tempered =
      std::exp(-kSteps * kDims * kDrift * kDrift / (8 * kScale * kScale)) * end_mean(kDrift / 2);
  EXPECT_NEAR(by_sum, end_mean(kDrift), 0.025);
  EXPECT_NEAR(by_mean, tempered, 0.015);
  EXPECT_GT(end_mean(kDrift) - tempered, 0.2) << "the two must be told apart";
}

}  // namespace
}  // namespace oxbow::rl
