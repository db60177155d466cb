// SPDX-License-Identifier: Apache-2.0
// The probe tells equal weights from different ones, and close from far.
#include "services/weights/probe.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/graph_architecture.h"

namespace oxbow::weights {
namespace {

// v = w x + sigma + mean(tokens) + mean(pooled): every input matters.
class LinearModel final : public model::VelocityModel {
 public:
  explicit LinearModel(double w) : w_(w) {}
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const model::Conditioning& conditioning) const override {
    return w_ * x + sigma.view({-1, 1, 1, 1}) + conditioning.at(model::kPromptTokens).mean() +
           conditioning.at(model::kPooledPrompt).mean();
  }

 private:
  const double w_;
};

std::shared_ptr<const model::Architecture> Digits() {
  return testing::GraphArchitecture(testing::kDigitsGraph);
}

ProbeShape Shape() { return *ProbeShapeOf(*Digits(), {1, 4, 5}, {}); }

TEST(ProbeTest, EqualWeightsGiveEqualBits) {
  const auto a = RunProbe(LinearModel(2), Shape(), 5), b = RunProbe(LinearModel(2), Shape(), 5);
  EXPECT_TRUE(CompareProbes(a, b).bits_equal);
  EXPECT_TRUE(JudgeProbe(a, CompareProbes(a, b)).ok());
  EXPECT_NE(a.digest(), RunProbe(LinearModel(2), Shape(), 6).digest());
}

// Promise: Weights are verified.
TEST(ProbeTest, WrongWeightsAreRefusedAndRoundingIsNot) {
  const auto expected = RunProbe(LinearModel(2), Shape(), 5);
  const auto far = CompareProbes(expected, RunProbe(LinearModel(2.01), Shape(), 5));
  EXPECT_FALSE(far.bits_equal);
  EXPECT_EQ(JudgeProbe(expected, far).code(), absl::StatusCode::kDataLoss);
  const auto close = CompareProbes(expected, RunProbe(LinearModel(2.000001), Shape(), 5));
  EXPECT_FALSE(close.bits_equal);
  EXPECT_TRUE(JudgeProbe(expected, close).ok());
}

TEST(ProbeTest, NaNNeverPasses) {
  const auto expected = RunProbe(LinearModel(2), Shape(), 5);
  const auto nan = RunProbe(LinearModel(NAN), Shape(), 5);
  EXPECT_FALSE(JudgeProbe(expected, CompareProbes(expected, nan)).ok());
  EXPECT_FALSE(JudgeProbe(nan, CompareProbes(nan, nan)).ok());
}

TEST(ProbeTest, AGuidedModelGetsAsManyTokensAsItsNegativePromptHas) {
  EXPECT_EQ(Shape().tokens, 4);
  EXPECT_EQ(
      ProbeShapeOf(*Digits(), {1, 4, 5}, {{model::kPromptTokens, at::zeros({1, 9, 64})}})->tokens,
      9);
}

TEST(ProbeTest, LatentsOfAnotherArchitectureAreRefused) {
  EXPECT_FALSE(ProbeShapeOf(*Digits(), {4, 5}, {}).ok());
}

}  // namespace
}  // namespace oxbow::weights
