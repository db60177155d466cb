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

std::vector<double> Head(const nlohmann::json& values, size_t keep) {
  auto all = values.get<std::vector<double>>();
  all.resize(keep);
  return all;
}

TEST(CorrectionTest, GoldenWeights) {
  for (const auto& r : Golden()["sequence"]) {
    for (const auto& [name, scale] :
         {std::pair{"mean", WeightScale::kMean}, std::pair{"sqrt", WeightScale::kSqrt},
          std::pair{"sum", WeightScale::kSum}}) {
      const auto weight = ComputeSequenceWeight(
          Head(r["lp_old"], r["keep"]), Head(r["lp_off"], r["keep"]), r["dims"], {.scale = scale});
      const double log_w = r[name]["log_w"];
      EXPECT_NEAR(weight.log_weight, log_w, kGoldenTolerance * std::max(1., std::abs(log_w)))
          << name;
      EXPECT_NEAR(weight.weight, r[name]["w"], kGoldenTolerance * std::max(1., std::abs(log_w)))
          << name;
    }
  }
}

TEST(CorrectionTest, GeometricMeanCapClampAndFloor) {
  const std::vector<double> old = {-1.40, -1.35, -1.20};
  const std::vector<double> off = {-1.401, -1.3492, -1.2035};
  EXPECT_NEAR(ComputeSequenceWeight(old, off, 65536, {}).weight, 1.00370685345, 1e-11);
  EXPECT_NEAR(ComputeSequenceWeight(old, off, 65536, {.geometric = true}).weight, 1.0012340942,
              1e-10);
  const auto capped = ComputeSequenceWeight(old, off, 65536, {.scale = WeightScale::kSum});
  EXPECT_EQ(capped.weight, 2);
  EXPECT_TRUE(capped.truncated);
  const auto tiny = ComputeSequenceWeight(off, old, 65536, {.scale = WeightScale::kSum});
  EXPECT_DOUBLE_EQ(tiny.weight, std::exp(-20.));
  const auto under =
      ComputeSequenceWeight(off, old, 65536, {.scale = WeightScale::kSum, .floor = .1});
  EXPECT_TRUE(under.evict);
  EXPECT_EQ(under.weight, 0);
  const auto broken = ComputeSequenceWeight({std::numeric_limits<double>::quiet_NaN()}, {0}, 4, {});
  EXPECT_TRUE(broken.evict);
  EXPECT_EQ(broken.weight, 0);
}

TEST(CorrectionTest, EffectiveSampleSize) {
  EXPECT_DOUBLE_EQ(EffectiveSampleSize({1, 1, 1, 1}), 4);
  EXPECT_DOUBLE_EQ(EffectiveSampleSize({2, 0, 0}), 1);
  EXPECT_EQ(EffectiveSampleSize({}), 0);
}

// Two linear-Gaussian policies of D = 2 and T = 3 that differ by a constant drift in every step.
// Under the behaviour policy, the `sum` weight must turn the mean of x_T into that of the old
// policy; `mean`, its D-th root, must give exp(-T D delta^2 / (8 S^2)) times the mean half-way
// between instead.
TEST(CorrectionTest, SumScaleIsUnbiasedAndMeanScaleIsOffByAKnownAmount) {
  constexpr uint64_t kSeed = 21;
  SCOPED_TRACE(kSeed);
  constexpr int kDims = 2, kSteps = 3, kSamples = 400'000;
  constexpr double kGain = 0.9, kScale = 0.7, kDrift = 0.3, kStart = 1;
  const auto end_mean = [&](double drift) {
    double mean = kStart;
    for (int i = 0; i < kSteps; ++i) mean = kGain * mean + drift;
    return mean;
  };
  const WeightOptions sum{.scale = WeightScale::kSum, .cap = 1e9};
  const WeightOptions mean{.scale = WeightScale::kMean, .cap = 1e9};
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
    by_sum += ComputeSequenceWeight(old, off, kDims, sum).weight * x[0] / kSamples;
    by_mean += ComputeSequenceWeight(old, off, kDims, mean).weight * x[0] / kSamples;
  }
  const double tempered =
      std::exp(-kSteps * kDims * kDrift * kDrift / (8 * kScale * kScale)) * end_mean(kDrift / 2);
  EXPECT_NEAR(by_sum, end_mean(kDrift), 0.025);
  EXPECT_NEAR(by_mean, tempered, 0.015);
  EXPECT_GT(end_mean(kDrift) - tempered, 0.2) << "the two must be told apart";
}

}  // namespace
}  // namespace oxbow::rl
