// SPDX-License-Identifier: Apache-2.0
#include "core/model/int8_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "core/model/policy.h"
#include "tests/testing/initial_weights.h"
#include "tests/testing/small_sd3.h"

namespace oxbow::model {
namespace {

using ::testing::HasSubstr;

// Rows of very different sizes, one of zeros and one of a single value.
at::Tensor SomeWeight(int64_t seed) {
  at::manual_seed(seed);
  at::Tensor weight = at::randn({24, 32}) * at::exp(at::linspace(-12, 6, 24)).unsqueeze(1);
  weight[3].zero_();
  weight[4].fill_(-0.7);
  return weight;
}

// In doubles, a value at a time. The scale's own rounding is the code's.
TEST(Int8WeightsTest, EachValueIsTheNearestMultipleOfItsRowsScale) {
  for (const int64_t seed : {1, 2, 3}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor weight = SomeWeight(seed);
      const Int8Weight int8 = ToInt8(weight, type);
      ASSERT_EQ(int8.values.scalar_type(), at::kChar);
      ASSERT_EQ(int8.scale.scalar_type(), type);
      const at::Tensor scales = int8.scale.to(at::kDouble);
      for (int64_t row = 0; row < weight.size(0); ++row) {
        double largest = 0;
        for (int64_t i = 0; i < weight.size(1); ++i) {
          largest = std::max(largest, std::abs(weight[row][i].item<double>()));
        }
        const double scale = scales[row][0].item<double>(), least = largest / 127;
        SCOPED_TRACE(::testing::Message() << "seed " << seed << ", row " << row);
        if (largest == 0) {
          EXPECT_EQ(scale, 1);
        } else {
          EXPECT_GE(scale, least * (1 - 1e-7));
          EXPECT_LE(scale, least * (1 + (type == at::kFloat ? 1e-7 : 1.0 / 128)));
        }
        for (int64_t i = 0; i < weight.size(1); ++i) {
          const double value = int8.values[row][i].item<int>();
          const double error = std::abs(weight[row][i].item<double>() - scale * value);
          EXPECT_LE(error, scale * (0.5 + 1e-5)) << i;
        }
      }
      EXPECT_TRUE(at::equal(PlainWeight(int8),
                            (int8.values.to(at::kFloat) * int8.scale.to(at::kFloat)).to(type)));
    }
  }
}

TEST(Int8WeightsTest, AProductAndItsGradientAreThoseOfThePlainWeight) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Int8Weight int8 = ToInt8(SomeWeight(7), type);
    const at::Tensor plain = PlainWeight(int8);
    for (const at::Tensor& bias : {at::Tensor(), at::randn({24}).to(type)}) {
      const at::Tensor rows = at::randn({40, 32}).to(type), dy = at::randn({40, 24}).to(type);
      const at::Tensor x = rows.clone().set_requires_grad(true);
      const at::Tensor want_x = rows.clone().set_requires_grad(true);
      const at::Tensor want = at::linear(want_x, plain, bias), y = Int8Product(x, int8, bias);
      EXPECT_TRUE(at::equal(y, want));
      y.backward(dy);
      want.backward(dy);
      EXPECT_TRUE(at::equal(x.grad(), want_x.grad()));
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(at::equal(Int8Product(rows, int8, bias), want));
    }
  }
}

Policy::Options Options(at::ScalarType compute) {
  RandomStream random({.seed = 3});
  Policy::Options options{.architecture = SmallSd3(/*blocks=*/2, /*dual=*/0),
                          .base = InitialWeights(*SmallSd3(/*blocks=*/2, /*dual=*/0), random),
                          .trained = Trained::kLora,
                          .lora = {.rank = 3, .alpha = 6, .targets = {"attn.to_q", "ff.net.2"}},
                          .compute = compute};
  for (auto& [name, tensor] : options.base) {
    if (name != kPositionTable) tensor.add_(at::randn(tensor.sizes()), 0.1);
  }
  return options;
}

at::Tensor Velocity(const VelocityModel& model) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({3, 2, 8, 6}), sigma = at::rand({3});
  return model.Velocity(
      x, sigma, {{kPromptTokens, at::randn({3, 5, 12})}, {kPooledPrompt, at::randn({3, 10})}});
}

// Gradients of an adapter that does something.
at::Tensor GradientOf(Policy& policy) {
  at::manual_seed(6);
  {
    const at::NoGradGuard no_grad;
    policy.parameters().flat().copy_(at::randn(policy.parameters().flat().sizes()) * 0.1);
  }
  Velocity(policy.current()).square().sum().backward();
  return policy.parameters().flat_grad();
}

// Promise: Workers sample with the learner's int8 weights. With `int8` in `model.memory` the
// learner rounds the base once and workers get its bytes. Velocities and gradients are, bit for
// bit, those of a network with the rounded weights.
TEST(Int8WeightsTest, APolicyComputesWhatOneOfThePlainWeightsDoes) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    for (const bool recompute : {false, true}) {
      Policy::Options options = Options(compute), plain_options = options;
      options.checkpoint_activations = plain_options.checkpoint_activations = recompute;
      const std::set<std::string> names = Int8Names(*options.architecture);
      EXPECT_GT(names.size(), 20u);
      for (const std::string& name : names) {
        at::Tensor& weight = plain_options.base.at(name);
        weight = PlainWeight(ToInt8(weight, compute)).to(at::kFloat);
      }
      const at::Tensor exact = Velocity((*Policy::Create(options))->reference());
      options.base_weights = BaseWeights::kInt8;
      const auto int8 = *Policy::Create(options), plain = *Policy::Create(plain_options);
      const at::Tensor v = Velocity(int8->reference());
      EXPECT_TRUE(at::equal(v, Velocity(plain->reference())));
      EXPECT_FALSE(at::equal(v, exact));
      EXPECT_LT((v - exact).norm().item<double>(), 0.05 * exact.norm().item<double>());
      // A narrow network multiplies by the plain weights of q, k and v at once.
      const at::Tensor got = GradientOf(*int8), want = GradientOf(*plain);
      EXPECT_GT(want.abs().max().item<double>(), 0);
      EXPECT_LT((got - want).norm().item<double>(),
                (compute == at::kFloat ? 1e-6 : 1e-2) * want.norm().item<double>());
    }
  }
}

// As a worker makes its policy of what the learner sends.
// Promise: Workers sample with the learner's int8 weights.
TEST(Int8WeightsTest, FrozenWeightsMakeAnotherPolicyOfTheSameBits) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    Policy::Options options = Options(compute);
    options.base_weights = BaseWeights::kInt8;
    const auto learner = *Policy::Create(options);
    options.base = learner->frozen();
    const auto worker = *Policy::Create(options);
    ASSERT_EQ(worker->frozen().size(), learner->frozen().size());
    for (const auto& [name, tensor] : learner->frozen()) {
      EXPECT_TRUE(at::equal(worker->frozen().at(name), tensor)) << name;
    }
    EXPECT_TRUE(at::equal(Velocity(worker->current()), Velocity(learner->current())));
  }
}

TEST(Int8WeightsTest, WeightsWithoutTheirScalesAreRefused) {
  Policy::Options options = Options(at::kFloat);
  options.base_weights = BaseWeights::kInt8;
  const NamedTensors frozen = (*Policy::Create(options))->frozen();
  const std::string weight = "transformer_blocks.1.attn.to_q.weight";
  const std::string scale = weight + "_scale";
  const auto refusal = [&options](NamedTensors base, BaseWeights kept) {
    options.base = std::move(base);
    options.base_weights = kept;
    const auto policy = Policy::Create(options);
    EXPECT_EQ(policy.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(policy.status().message());
  };
  NamedTensors base = frozen;
  base.erase(scale);
  EXPECT_THAT(refusal(base, BaseWeights::kInt8), HasSubstr(weight + " has no scale"));
  base[scale] = at::ones({3, 1});
  EXPECT_THAT(refusal(base, BaseWeights::kInt8), HasSubstr(scale + " does not have one value"));
  EXPECT_THAT(refusal(frozen, BaseWeights::kCompute), HasSubstr("is int8, and should not be"));
  base = frozen;
  base[weight] = PlainWeight({frozen.at(weight), frozen.at(scale)});
  EXPECT_THAT(refusal(base, BaseWeights::kInt8), HasSubstr("unexpected: " + scale));
}

}  // namespace
}  // namespace oxbow::model
