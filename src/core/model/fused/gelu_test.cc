// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/gelu.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/model/fused/gelu_kernel.h"

namespace oxbow::model::fused {
namespace {

// Values from 1e-30 to 1e30 of both signs, and many where the function bends.
at::Tensor Values() {
  const at::Tensor sizes = at::pow(10.0, at::linspace(-30, 30, 1201, at::kDouble));
  const at::Tensor bend = at::linspace(-12, 12, 20'001, at::kDouble);
  return at::cat({sizes, -sizes, bend, at::zeros({1}, at::kDouble)}).to(at::kFloat);
}

// The greatest error in units of |x| + 1.
double Error(const at::Tensor& got, const at::Tensor& exact, const at::Tensor& x) {
  const at::Tensor exact_x = x.to(at::kDouble);
  return ((got.to(at::kDouble) - exact).abs() / (exact_x.abs() + 1)).max().item<double>();
}

TEST(GeluTest, IsPyTorchsInDoublePrecisionAndSoIsItsGradient) {
  at::Tensor x = Values().set_requires_grad(true);
  at::Tensor exact_x = x.detach().to(at::kDouble).set_requires_grad(true);
  const at::Tensor exact = at::gelu(exact_x, "tanh");
  const at::Tensor y = GeluTanh(x);
  EXPECT_LT(Error(y, exact, x), 1e-6);
  const at::Tensor direction = at::linspace(-2, 2, x.numel(), at::kDouble);
  y.backward(direction.to(at::kFloat));
  exact.backward(direction);
  EXPECT_LT(Error(x.grad(), exact_x.grad(), x), 2e-6);
  // An oracle that does the work of PyTorch's operator in the same precision is no better.
  EXPECT_LT(Error(y, exact, x), 4 * Error(at::gelu(x.detach(), "tanh"), exact, x) + 1e-7);
}

// Ratios of policies are exactly 1 only so: a value's bits do not know its neighbours.
TEST(GeluTest, AValueHasTheSameBitsAtEveryPlace) {
  at::set_num_threads(1);
  const at::Tensor x = Values();
  const at::Tensor y = GeluTanh(x);
  const at::Tensor dy = at::full_like(x, 0.7f);
  at::Tensor dx = at::empty_like(x);
  GeluTanhGradient(x.const_data_ptr<float>(), dy.const_data_ptr<float>(),
                   dx.mutable_data_ptr<float>(), x.numel());
  for (const int64_t count : {1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 200}) {
    for (const int64_t first : {0, 1, 5, 1300, 9'000}) {
      const at::Tensor part = x.narrow(0, first, count).clone();
      EXPECT_TRUE(at::equal(GeluTanh(part), y.narrow(0, first, count))) << count << " at " << first;
      at::Tensor gradient = dy.narrow(0, first, count).clone();  // In place.
      GeluTanhGradient(part.const_data_ptr<float>(), gradient.const_data_ptr<float>(),
                       gradient.mutable_data_ptr<float>(), count);
      EXPECT_TRUE(at::equal(gradient, dx.narrow(0, first, count))) << count << " at " << first;
    }
  }
}

TEST(GeluTest, TakesAnyLayoutTypeAndMode) {
  const at::Tensor x = at::linspace(-3, 3, 60, at::kFloat).view({5, 12});
  const at::Tensor exact = at::gelu(x, "tanh");
  EXPECT_TRUE(at::allclose(GeluTanh(x.t()), exact.t(), 1e-5, 1e-6));
  EXPECT_TRUE(at::equal(GeluTanh(x.to(at::kDouble)), at::gelu(x.to(at::kDouble), "tanh")));
  EXPECT_EQ(GeluTanh(x.to(at::kBFloat16)).scalar_type(), at::kBFloat16);
  EXPECT_EQ(GeluTanh(at::empty({0, 4})).numel(), 0);
  at::Tensor strided = x.t().detach().clone().t().set_requires_grad(true);
  GeluTanh(strided.t()).sum().backward();
  EXPECT_EQ(strided.grad().sizes(), strided.sizes());
  const c10::InferenceMode inference;
  EXPECT_TRUE(at::allclose(GeluTanh(x), exact, 1e-5, 1e-6));
}

TEST(GeluTest, WhatIsNotFiniteStaysVisible) {
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor y = GeluTanh(at::tensor({std::numeric_limits<float>::quiet_NaN(), inf}));
  EXPECT_TRUE(y[0].isnan().item<bool>());
  EXPECT_EQ(y[1].item<float>(), inf);
}

}  // namespace
}  // namespace oxbow::model::fused
