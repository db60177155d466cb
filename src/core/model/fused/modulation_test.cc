// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/modulation.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <limits>
#include <tuple>

namespace oxbow::model::fused {
namespace {

constexpr double kEpsilon = 1e-6;

struct Inputs {
  at::Tensor x, y, scale, shift, gate;
};

// Conditions are columns of one product, as a block's are.
Inputs Drawn(int64_t batch, int64_t tokens, int64_t width) {
  at::manual_seed(11);
  const auto parts = at::randn({batch, 3 * width}).chunk(3, 1);
  return {at::randn({batch, tokens, width}) * 3 + 2, at::randn({batch, tokens, width}), parts[0],
          parts[1], parts[2]};
}

// The result of PyTorch's operators in float64.
at::Tensor Modulated(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) {
  return at::layer_norm(x, {x.size(-1)}, {}, {}, kEpsilon) * (1 + scale).unsqueeze(1) +
         shift.unsqueeze(1);
}

at::Tensor Leaf(const at::Tensor& x, at::ScalarType type) {
  return x.to(type).clone().set_requires_grad(true);
}

void ExpectClose(const at::Tensor& got, const at::Tensor& exact) {
  EXPECT_LT((got.to(at::kDouble) - exact).abs().max().item<double>(),
            3e-6 * (exact.abs().max().item<double>() + 1));
}

TEST(ModulationTest, ValuesAndGradientsArePyTorchsInDoublePrecision) {
  for (const auto& [batch, tokens, width] :
       {std::tuple(1, 1, 16), std::tuple(3, 19, 64), std::tuple(2, 5, 1536)}) {
    SCOPED_TRACE(width);
    const Inputs in = Drawn(batch, tokens, width);
    const at::Tensor direction = at::randn_like(in.x);
    at::Tensor x = Leaf(in.x, at::kFloat), scale = Leaf(in.scale, at::kFloat),
               shift = Leaf(in.shift, at::kFloat);
    at::Tensor dx = Leaf(in.x, at::kDouble), dscale = Leaf(in.scale, at::kDouble),
               dshift = Leaf(in.shift, at::kDouble);
    const at::Tensor got = NormModulateOnCpu(x, scale, shift, kEpsilon).value();
    const at::Tensor exact = Modulated(dx, dscale, dshift);
    ExpectClose(got, exact);
    got.backward(direction);
    exact.backward(direction.to(at::kDouble));
    ExpectClose(x.grad(), dx.grad());
    ExpectClose(scale.grad(), dscale.grad());
    ExpectClose(shift.grad(), dshift.grad());
  }
}

TEST(ModulationTest, GatedSumsAndTheirGradientsArePyTorchsInDoublePrecision) {
  const Inputs in = Drawn(3, 19, 64);
  const at::Tensor direction = at::randn_like(in.x);
  at::Tensor x = Leaf(in.x, at::kFloat), gate = Leaf(in.gate, at::kFloat),
             y = Leaf(in.y, at::kFloat);
  at::Tensor dx = Leaf(in.x, at::kDouble), dgate = Leaf(in.gate, at::kDouble),
             dy = Leaf(in.y, at::kDouble);
  const at::Tensor got = AddGatedOnCpu(x, gate, y).value();
  const at::Tensor exact = dx + dgate.unsqueeze(1) * dy;
  ExpectClose(got, exact);
  // Read the other way round, as an attention's gradient may be.
  got.transpose(0, 1).backward(direction.transpose(0, 1));
  exact.backward(direction.to(at::kDouble));
  ExpectClose(x.grad(), dx.grad());
  ExpectClose(gate.grad(), dgate.grad());
  ExpectClose(y.grad(), dy.grad());
}

// Ratios of policies are exactly 1 only so.
TEST(ModulationTest, ATokenHasTheSameBitsInAnyCompanyAndWithoutGradients) {
  const Inputs in = Drawn(5, 19, 64);
  const at::Tensor all = *NormModulateOnCpu(in.x, in.scale, in.shift, kEpsilon);
  const at::Tensor sums = *AddGatedOnCpu(in.x, in.gate, in.y);
  for (int64_t b = 0; b < 5; ++b) {
    const at::Tensor x = in.x.narrow(0, b, 1).narrow(1, b, 4).contiguous();
    const at::Tensor y = in.y.narrow(0, b, 1).narrow(1, b, 4).contiguous();
    at::Tensor leaf = x.clone().set_requires_grad(true);
    const auto row = [b](const at::Tensor& of) { return of.narrow(0, b, 1); };
    const auto part = [b](const at::Tensor& of) { return of.narrow(0, b, 1).narrow(1, b, 4); };
    EXPECT_TRUE(
        at::equal(*NormModulateOnCpu(leaf, row(in.scale), row(in.shift), kEpsilon), part(all)));
    EXPECT_TRUE(at::equal(*AddGatedOnCpu(leaf, row(in.gate), y), part(sums)));
  }
  const c10::InferenceMode inference;
  EXPECT_TRUE(at::equal(*NormModulateOnCpu(in.x, in.scale, in.shift, kEpsilon), all));
}

TEST(ModulationTest, WhatItDoesNotTakeIsLeftToPyTorch) {
  const Inputs in = Drawn(2, 3, 32);
  const auto takes = [&](const at::Tensor& x, const at::Tensor& scale) {
    return NormModulateOnCpu(x, scale, scale, kEpsilon).has_value() &&
           AddGatedOnCpu(x, scale, x).has_value();
  };
  EXPECT_TRUE(takes(in.x, in.scale));
  EXPECT_FALSE(takes(in.x.to(at::kBFloat16), in.scale));
  EXPECT_FALSE(takes(in.x.transpose(0, 1), in.scale));
  EXPECT_FALSE(takes(in.x.narrow(2, 0, 24).contiguous(), in.scale.narrow(1, 0, 24)));
  EXPECT_FALSE(takes(in.x, in.scale.narrow(0, 0, 1)));
  EXPECT_FALSE(takes(in.x, in.scale.to(at::kDouble)));
}

TEST(ModulationTest, WhatIsNotFiniteStaysVisible) {
  Inputs in = Drawn(1, 2, 16);
  in.x[0][1][3] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor y = *NormModulateOnCpu(in.x, in.scale, in.shift, kEpsilon);
  EXPECT_TRUE(y[0][0].isfinite().all().item<bool>());
  EXPECT_TRUE(y[0][1].isnan().all().item<bool>());
}

}  // namespace
}  // namespace oxbow::model::fused
