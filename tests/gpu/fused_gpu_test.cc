// SPDX-License-Identifier: Apache-2.0
// The fused kernels give what the same layers of PyTorch's operators give, forward and backward,
// and step aside where they do not apply.
#include <torch/csrc/autograd/autograd.h>

#include "core/model/adapted_linears.h"
#include "core/model/device.h"
#include "core/model/fused/fused_layers.h"
#include "core/model/fused/head_layers.h"
#include "core/model/layers.h"
#include "core/model/side_by_side.h"
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
  const auto y = fused::NormTokens(x, {{scale.unsqueeze(1), shift.unsqueeze(1)}}, kEps, out);
  return y.empty() ? std::nullopt : std::optional(y[0]);
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

// Layers of one input, against float64: one, three alike, and some whose weights lie side by side.
struct FormOfLayers {
  std::vector<int64_t> outs;
  std::vector<int> adapted;
  bool side_by_side = false, bias = false;
};

// y = x W^T + b + scale x A^T B^T.
at::Tensor ExactProduct(const at::Tensor& x, const Linear& of) {
  const auto exact = [](const at::Tensor& t) { return t.to(at::kDouble); };
  at::Tensor y = at::matmul(exact(x), exact(of.weight).t());
  if (of.bias.defined()) y = y + exact(of.bias);
  if (!of.lora_a.defined()) return y;
  const at::Tensor down = at::matmul(exact(x), exact(of.lora_a).t());
  return y + at::matmul(down, exact(of.lora_b).t()) * of.lora_scale;
}

class FrozenLinearsGpuTest : public FusedGpuTest {
 protected:
  static constexpr int64_t kIn = 48, kRank = 4;

  std::vector<Linear> Layers(const FormOfLayers& form, at::ScalarType type) const {
    std::vector<std::string> names;
    Shapes shapes;
    int64_t total = 0;
    for (const int64_t out : form.outs) {
      names.push_back(std::to_string(names.size()));
      shapes[names.back()] = {out, kIn};
      total += out;
    }
    const NamedTensors places =
        PlacedSideBySide({names}, shapes, at::TensorOptions(gpu_).dtype(type));
    const at::Tensor biases = Random({total}, type);
    std::vector<Linear> linears(form.outs.size());
    int64_t from = 0;
    for (size_t i = 0; i < linears.size(); ++i) {
      const int64_t out = form.outs[i];
      const at::Tensor weight = Random({out, kIn}, type);
      linears[i].weight =
          form.side_by_side ? at::Tensor(places.at(names[i])).copy_(weight) : weight;
      if (form.bias) linears[i].bias = biases.narrow(0, from, out);
      from += out;
      if (form.adapted[i] == 0) continue;
      linears[i].lora_a = Random({kRank, kIn}, at::kFloat).requires_grad_();
      linears[i].lora_b = Random({out, kRank}, at::kFloat).requires_grad_();
      linears[i].lora_scale = 0.75;
    }
    return linears;
  }

  void Check(const FormOfLayers& form, at::ScalarType type, int64_t rows) const {
    const AutocastScope autocast(at::kCUDA, type);
    const at::Tensor x = Random({rows, 5, kIn}, type).requires_grad_();
    const std::vector<Linear> linears = Layers(form, type);
    ASSERT_EQ(GoSideBySide(linears), form.side_by_side);
    std::vector<at::Tensor> sources = {x};
    const std::vector<at::Tensor> ours = ApplyFrozen(x, linears);
    ASSERT_EQ(ours.size(), linears.size());
    at::Tensor sum, wanted_sum;
    for (size_t i = 0; i < linears.size(); ++i) {
      if (linears[i].lora_a.defined()) {
        sources.insert(sources.end(), {linears[i].lora_a, linears[i].lora_b});
      }
      const at::Tensor wanted = ExactProduct(x, linears[i]);
      ExpectNear("y", ours[i].to(at::kDouble), wanted, 4 * ToleranceOf(type));
      const at::Tensor dy = Random(wanted.sizes(), at::kFloat);
      const at::Tensor part = (ours[i].to(at::kDouble) * dy).sum();
      const at::Tensor wanted_part = (wanted * dy).sum();
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
    const std::vector<at::Tensor> flat = FlatMatrices(linears);
    const at::Tensor matrices = flat.empty() ? at::Tensor() : at::cat(flat).to(type);
    const auto again = ApplyFrozen(x, linears), rounded = ApplyFrozen(x, linears, matrices);
    for (size_t i = 0; i < linears.size(); ++i) {
      EXPECT_TRUE(again[i].equal(ours[i])) << "the same without gradients";
      EXPECT_TRUE(rounded[i].equal(ours[i])) << "the same from matrices that were rounded before";
    }
  }
};

TEST_F(FrozenLinearsGpuTest, AreTheFormula) {
  const std::vector<FormOfLayers> forms = {
      {.outs = {64}, .adapted = {1}},
      {.outs = {64, 64, 64}, .adapted = {1, 1, 1}, .bias = true},
      {.outs = {64, 64, 64}, .adapted = {1, 1, 1}, .side_by_side = true, .bias = true},
      {.outs = {64, 64, 64}, .adapted = {1, 0, 1}, .side_by_side = true},
      {.outs = {96, 64, 64, 64}, .adapted = {0, 1, 1, 1}, .side_by_side = true, .bias = true},
      {.outs = {64, 64, 96, 32}, .adapted = {1, 1, 1, 0}, .side_by_side = true},
      {.outs = {64, 32}, .adapted = {0, 0}, .side_by_side = true, .bias = true}};
  for (const at::ScalarType type : types_) {
    for (size_t i = 0; i < forms.size(); ++i) {
      for (const int64_t rows : {1, 2, 7}) {
        SCOPED_TRACE(::testing::Message() << i << " " << rows);
        Check(forms[i], type, rows);
      }
    }
  }
}

TEST_F(FrozenLinearsGpuTest, SideBySideGiveColumnsOfOneProduct) {
  const auto linears =
      Layers({.outs = {96, 64, 64}, .adapted = {0, 1, 1}, .side_by_side = true}, at::kFloat);
  const at::Tensor x = Random({2, 5, kIn}, at::kFloat);
  const auto results = ApplyFrozen(x, linears);
  ASSERT_EQ(results.size(), 3u);
  for (const at::Tensor& result : results) {
    EXPECT_TRUE(result.is_alias_of(results[0]));
    EXPECT_EQ(result.stride(1), 96 + 64 + 64);
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
