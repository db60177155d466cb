// SPDX-License-Identifier: Apache-2.0
// The fused kernels give what the same layers of PyTorch's operators give, forward and backward,
// and step aside where they do not apply.
#include <torch/csrc/autograd/autograd.h>

#include "core/model/frozen_linears.h"
#include "core/model/device.h"
#include "core/model/fused/fused_layers.h"
#include "core/model/fused/head_layers.h"
#include "core/model/layers.h"
#include "tests/gpu/gpu_test.h"

namespace oxbow::model {
namespace {

constexpr double kEps = 1e-6;
constexpr double kFloatTolerance = 2e-6;
constexpr double kBFloat16Tolerance = 6e-3;  // One rounding of 8 bits.

double ToleranceOf(at::ScalarType type) {
  return type == at::kFloat ? kFloatTolerance : kBFloat16Tolerance;
}

// Heads [..., heads, d].
std::optional<at::Tensor> RmsNorm(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor heads = x.dim() == 4 ? x : x.reshape({1, -1, x.size(-2), x.size(-1)});
  auto y = fused::JoinHeads({{.x = heads, .norm = true, .eps = kEps, .weight = weight}},
                            x.scalar_type());
  if (y) *y = y->view(x.sizes());
  return y;
}

// scale, shift and gate [B, D].
std::optional<at::Tensor> NormModulate(const at::Tensor& x, const at::Tensor& scale,
                                       const at::Tensor& shift, at::ScalarType out) {
  return fused::NormTokens(x, {scale.unsqueeze(1), shift.unsqueeze(1)}, kEps, out);
}

std::optional<at::Tensor> AddGated(const at::Tensor& x, const at::Tensor& gate,
                                   const at::Tensor& y) {
  return fused::GateTokens(x, gate.unsqueeze(1), y, at::kFloat);
}

class FusedGpuTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !fused::HasKernels()) GTEST_SKIP() << "no nvcc in this build";
    at::manual_seed(7);
  }
  at::Tensor Random(at::IntArrayRef shape, at::ScalarType type) const {
    return at::randn(shape, at::TensorOptions().device(gpu_)).to(type);
  }
  // [B, D] as one of several chunks of a wider result, as a modulation layer gives.
  at::Tensor Chunk(int64_t rows, int64_t width, at::ScalarType type) const {
    return Random({rows, 3 * width}, type).chunk(3, 1)[1];
  }
  static at::Tensor GradientOf(const at::Tensor& y, const at::Tensor& x, const at::Tensor& dy) {
    return torch::autograd::grad({y}, {x}, {dy.to(y.scalar_type())})[0];
  }
  const std::vector<at::ScalarType> types_ = {at::kFloat, at::kBFloat16};
};

TEST_F(FusedGpuTest, RmsNormIsTheFormula) {
  for (const at::ScalarType type : types_) {
    for (const int64_t width : {8, 64, 128}) {
      // Rows that fill no block.
      const at::Tensor x = Random({3, 77, 5, width}, type).requires_grad_();
      const at::Tensor weight = Random({width}, at::kFloat), dy = Random(x.sizes(), type);
      const auto y = RmsNorm(x, weight);
      ASSERT_TRUE(y.has_value()) << width;
      const at::Tensor exact = x.to(at::kDouble);
      const at::Tensor wanted =
          exact * at::rsqrt(exact.square().mean(-1, true) + kEps) * weight.to(at::kDouble);
      EXPECT_EQ(y->scalar_type(), type);
      ExpectNear("y", y->to(at::kDouble), wanted, ToleranceOf(type));
      ExpectNear("dx", GradientOf(*y, x, dy).to(at::kDouble),
                 GradientOf(wanted, x, dy).to(at::kDouble), ToleranceOf(type));
    }
  }
}

TEST_F(FusedGpuTest, NormModulateIsTheFormula) {
  for (const at::ScalarType type : types_) {
    for (const int64_t width : {4, 256, 1536, 4096}) {
      const at::Tensor x = (Random({3, 29, width}, at::kFloat) * 3 + 1).requires_grad_();
      const at::Tensor both = Random({3, 6 * width}, type);
      const auto chunks = both.chunk(6, 1);
      const auto y = NormModulate(x, chunks[1], chunks[0], type);
      ASSERT_EQ(y.has_value(), width % 8 == 0 || type == at::kFloat) << width;
      if (!y.has_value()) continue;
      const at::Tensor exact = x.to(at::kDouble);
      const at::Tensor wanted = at::layer_norm(exact, {width}, {}, {}, kEps) *
                                    (1 + chunks[1].to(at::kDouble).unsqueeze(1)) +
                                chunks[0].to(at::kDouble).unsqueeze(1);
      const at::Tensor dy = Random(x.sizes(), type);
      EXPECT_EQ(y->scalar_type(), type);
      ExpectNear("y", y->to(at::kDouble), wanted, ToleranceOf(type));
      ExpectNear("dx", GradientOf(*y, x, dy), GradientOf(wanted, x, dy), 1e-5);
    }
  }
}

TEST_F(FusedGpuTest, AddGatedIsTheFormula) {
  for (const at::ScalarType type : types_) {
    const at::Tensor x = Random({3, 29, 256}, at::kFloat).requires_grad_();
    const at::Tensor y = Random({3, 29, 256}, type).requires_grad_();
    const at::Tensor gate = Chunk(3, 256, type), d = Random(x.sizes(), at::kFloat);
    const auto sum = AddGated(x, gate, y);
    ASSERT_TRUE(sum.has_value());
    EXPECT_EQ(sum->scalar_type(), at::kFloat);
    const at::Tensor wanted =
        x.to(at::kDouble) + gate.to(at::kDouble).unsqueeze(1) * y.to(at::kDouble);
    ExpectNear("sum", sum->to(at::kDouble), wanted, kFloatTolerance);
    EXPECT_TRUE(at::equal(GradientOf(*sum, x, d), d));
    const auto again = AddGated(x, gate, y);
    ExpectNear("dy", GradientOf(*again, y, d).to(at::kDouble),
               GradientOf(wanted, y, d).to(at::kDouble), ToleranceOf(type));
  }
}

// Conditions of a column, a sample or a token, and residuals of either type.
TEST_F(FusedGpuTest, TokensTakeConditionsThatBroadcast) {
  for (const at::ScalarType type : types_) {
    for (const int64_t width : {64, 5120, 8192}) {
      const at::Tensor x = Random({2, 5, width}, type).requires_grad_();
      const at::Tensor y = Random({2, 5, width}, at::kBFloat16).requires_grad_();
      const at::Tensor wide = Random({2, 5, 2 * width}, type);
      const at::Tensor conditions[] = {Random({width}, type), Chunk(2, width, type).unsqueeze(1),
                                       wide.narrow(2, 0, width)};
      for (const at::Tensor& condition : conditions) {
        for (const double base : {0, 1}) {
          const at::Tensor exact = x.to(at::kDouble), c = condition.to(at::kDouble);
          const at::Tensor dy = Random(x.sizes(), at::kFloat);
          for (const bool centred : {true, false}) {
            // Anew for each backward pass.
            const auto scaled = [&] {
              return (centred ? at::layer_norm(exact, {width}, {}, {}, kEps)
                              : exact * at::rsqrt(exact.square().mean(-1, true) + kEps)) *
                     (base + c);
            };
            const fused::TokenModulation by{condition, condition, base, centred};
            const fused::TokenModulation other{condition, {}, base, centred};
            const auto ours = fused::NormTokens(x, {by, other}, kEps, at::kFloat);
            ASSERT_EQ(ours.size(), 2u) << width << " " << condition.sizes();
            EXPECT_TRUE(ours[0].equal(fused::NormTokens(x, {by}, kEps, at::kFloat)[0]));
            ExpectNear("y", ours[0].to(at::kDouble), scaled() + c, kFloatTolerance);
            ExpectNear("y2", ours[1].to(at::kDouble), scaled(), kFloatTolerance);
            const auto check = [&](const at::Tensor& found, const at::Tensor& wanted) {
              ExpectNear("dx", GradientOf(found, x, dy).to(at::kDouble),
                         GradientOf(wanted, x, dy).to(at::kDouble), ToleranceOf(type) + 1e-5);
            };
            check(ours[0] + ours[1] * 3, scaled() * 4 + c);
            check(fused::NormTokens(x, {by}, kEps, at::kFloat)[0], scaled() + c);
          }
        }
        const auto sum = fused::GateTokens(x, condition, y, type);
        ASSERT_TRUE(sum.has_value());
        const at::Tensor wanted = x.to(at::kDouble) + condition.to(at::kDouble) * y.to(at::kDouble);
        const at::Tensor d = Random(x.sizes(), type);
        ExpectNear("sum", sum->to(at::kDouble), wanted, ToleranceOf(type));
        ExpectNear("dy", GradientOf(*sum, y, d).to(at::kDouble),
                   GradientOf(wanted, y, d).to(at::kDouble), kBFloat16Tolerance);
      }
    }
  }
  const at::Tensor x = Random({2, 5, 64}, at::kFloat);
  const auto takes = [&](const at::Tensor& tokens, const fused::TokenModulation& by) {
    return !fused::NormTokens(tokens, {by}, kEps, at::kBFloat16).empty();
  };
  EXPECT_TRUE(takes(x, {})) << "a norm alone";
  EXPECT_FALSE(takes(x, {.scale = Random({3, 1, 64}, at::kFloat)}));
  EXPECT_FALSE(takes(Random({2, 5, 8196}, at::kFloat), {}));
  EXPECT_FALSE(fused::GateTokens(x, Random({2, 5, 1}, at::kFloat), x, at::kFloat));
}

// Layers of one input with adapters: one, and three at once, against float64.
TEST_F(FusedGpuTest, AdaptedLayersAreTheFormula) {
  for (const at::ScalarType type : types_) {
    for (const size_t count : {1, 3}) {
      const AutocastScope autocast(at::kCUDA, type);
      const at::Tensor x = Random({2, 5, 48}, type).requires_grad_();
      std::vector<Linear> linears(count);
      std::vector<at::Tensor> sources = {x};
      for (size_t i = 0; i < count; ++i) {
        Linear& linear = linears[i];
        linear = {.weight = Random({64, 48}, type),
                  .lora_a = Random({4, 48}, at::kFloat).requires_grad_(),
                  .lora_b = Random({64, 4}, at::kFloat).requires_grad_(),
                  .lora_scale = 0.75};
        if (count > 1) linear.bias = Random({64}, type);
        sources.insert(sources.end(), {linear.lora_a, linear.lora_b});
      }
      const std::vector<at::Tensor> ours = ApplyFrozen(x, linears);
      ASSERT_EQ(ours.size(), count);
      at::Tensor sum, wanted_sum;
      for (size_t i = 0; i < count; ++i) {
        const Linear& of = linears[i];
        const auto exact = [](const at::Tensor& t) { return t.to(at::kDouble); };
        at::Tensor wanted =
            at::matmul(exact(x), exact(of.weight).t()) +
            at::matmul(at::matmul(exact(x), exact(of.lora_a).t()), exact(of.lora_b).t()) *
                of.lora_scale;
        if (of.bias.defined()) wanted = wanted + exact(of.bias);
        ExpectNear("y", exact(ours[i]), wanted, 4 * ToleranceOf(type));
        const at::Tensor dy = Random(wanted.sizes(), at::kFloat);
        const at::Tensor part = (exact(ours[i]) * dy).sum(), wanted_part = (wanted * dy).sum();
        sum = sum.defined() ? sum + part : part;
        wanted_sum = wanted_sum.defined() ? wanted_sum + wanted_part : wanted_part;
      }
      const auto found = torch::autograd::grad({sum}, sources);
      const auto expected = torch::autograd::grad({wanted_sum}, sources);
      for (size_t i = 0; i < found.size(); ++i) {
        ExpectNear("gradient", found[i].to(at::kDouble), expected[i].to(at::kDouble),
                   4 * ToleranceOf(type));
      }
      const at::NoGradGuard no_gradients;
      for (size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(ApplyFrozen(x, linears)[i].equal(ours[i])) << "the same without gradients";
      }
    }
  }
}

// Sums have a fixed order.
TEST_F(FusedGpuTest, EqualInputsGiveEqualBits) {
  const at::Tensor x = Random({4, 100, 1536}, at::kFloat).requires_grad_();
  const at::Tensor scale = Chunk(4, 1536, at::kFloat), dy = Random(x.sizes(), at::kFloat);
  const auto once = [&] {
    const at::Tensor y = *NormModulate(x, scale, scale, at::kFloat);
    return std::pair(y, GradientOf(y, x, dy));
  };
  const auto [y, dx] = once();
  for (int i = 0; i < 3; ++i) {
    const auto [y_again, dx_again] = once();
    EXPECT_TRUE(at::equal(y, y_again));
    EXPECT_TRUE(at::equal(dx, dx_again));
  }
}

TEST_F(FusedGpuTest, WhatTrainsOrDoesNotFitIsLeftToPyTorch) {
  const at::Tensor x = Random({2, 9, 64}, at::kFloat), condition = Chunk(2, 64, at::kFloat);
  const at::Tensor trained = Random({2, 64}, at::kFloat).requires_grad_();
  const at::Tensor weight = Random({64}, at::kFloat);
  EXPECT_TRUE(RmsNorm(x, weight).has_value());
  EXPECT_FALSE(RmsNorm(x, Random({64}, at::kFloat).requires_grad_()).has_value());
  EXPECT_FALSE(RmsNorm(x.narrow(2, 0, 48), weight.narrow(0, 0, 48)).has_value());
  EXPECT_FALSE(RmsNorm(x.cpu(), weight.cpu()).has_value());
  EXPECT_TRUE(NormModulate(x, condition, condition, at::kFloat).has_value());
  EXPECT_FALSE(NormModulate(x, trained, condition, at::kFloat).has_value());
  EXPECT_TRUE(AddGated(x, condition, x).has_value());
  EXPECT_FALSE(AddGated(x, trained, x).has_value());
  EXPECT_FALSE(AddGated(x, condition, x.narrow(1, 0, 5)).has_value());
}

}  // namespace
}  // namespace oxbow::model
