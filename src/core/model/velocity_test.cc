// SPDX-License-Identifier: Apache-2.0
// Laws that reinforcement learning relies on: a row's velocity has the same bits whatever the
// batch, and the same with and without gradients. Ratios are exactly 1 on-policy because of this.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include "core/model/policy.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_architecture.h"
#include "tests/testing/initial_weights.h"

namespace oxbow::model {
namespace {

constexpr uint64_t kSeed = 11;

std::shared_ptr<const Architecture> Digits() {
  return testing::GraphArchitecture(testing::kDigitsGraph);
}

at::Tensor Draw(at::IntArrayRef shape, RandomStream& random) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  random.FillNormal(std::span<float>(tensor.mutable_data_ptr<float>(), tensor.numel()));
  return tensor;
}

NamedTensors RandomWeights(const Architecture& network) {
  RandomStream random({.seed = kSeed});
  NamedTensors weights = InitialWeights(network, random);
  for (auto& [name, tensor] : weights) {  // Zero-initialised layers would hide everything.
    if (name != kPositionTable) tensor = tensor + Draw(tensor.sizes(), random) * 0.05;
  }
  return weights;
}

struct Inputs {
  at::Tensor x, sigma;
  Conditioning conditioning;
};

Inputs RandomInputs(int64_t rows) {
  RandomStream random({.seed = kSeed, .group = 1});
  return {.x = Draw({rows, 1, 8, 20}, random),
          .sigma = at::sigmoid(Draw({rows}, random)),
          .conditioning = {{kPromptTokens, Draw({rows, 6, 64}, random)},
                           {kPooledPrompt, Draw({rows, 64}, random)}}};
}

Inputs Rows(const Inputs& inputs, int64_t first, int64_t count) {
  return {inputs.x.narrow(0, first, count), inputs.sigma.narrow(0, first, count),
          NarrowRows(inputs.conditioning, first, count)};
}

at::Tensor VelocityOf(const VelocityModel& model, const Inputs& inputs) {
  return model.Velocity(inputs.x, inputs.sigma, inputs.conditioning);
}

class RowInvarianceTest : public ::testing::TestWithParam<Trained> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    Policy::Options options{
        .architecture = Digits(), .base = RandomWeights(*Digits()), .trained = GetParam()};
    options.lora = {
        .rank = 8, .alpha = 16, .targets = {"attn.to_q", "attn.to_v", "attn.add_k_proj"}};
    policy_ = *Policy::Create(std::move(options));
    RandomStream random({.seed = kSeed, .group = 2});
    const at::NoGradGuard no_grad;
    policy_->parameters().flat().add_(Draw({policy_->parameters().numel()}, random) * 0.02);
  }
  std::unique_ptr<Policy> policy_;
};

// Promise: The worker that samples does not matter.
TEST_P(RowInvarianceTest, ARowHasTheSameBitsInEveryBatchWithAndWithoutGradients) {
  constexpr int64_t kRows = 168;
  const Inputs all = RandomInputs(kRows);
  const at::Tensor expected = VelocityOf(policy_->current(), all).detach();
  std::vector<int64_t> sizes = {64, 65, 100, 128, 160};
  for (int64_t size = 1; size <= 40; ++size) sizes.push_back(size);
  for (const int64_t size : sizes) {
    const int64_t first = (size * 7) % (kRows - size + 1);
    const Inputs part = Rows(all, first, size);
    const at::Tensor with_gradients = VelocityOf(policy_->current(), part);
    EXPECT_TRUE(with_gradients.requires_grad());
    EXPECT_TRUE(at::equal(with_gradients, expected.narrow(0, first, size))) << size << " with grad";
    {
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(at::equal(VelocityOf(policy_->current(), part), expected.narrow(0, first, size)))
          << size;
    }
    const c10::InferenceMode inference;
    EXPECT_TRUE(at::equal(VelocityOf(policy_->current(), part), expected.narrow(0, first, size)))
        << size;
  }
}

TEST_P(RowInvarianceTest, SharedConditioningIsThatOfEveryRow) {
  const at::NoGradGuard no_grad;
  const Inputs inputs = RandomInputs(5);
  const Conditioning one = Rows(inputs, 0, 1).conditioning;
  const Conditioning five = ConcatRows({one, one, one, one, one});
  EXPECT_TRUE(at::equal(policy_->current().Velocity(inputs.x, inputs.sigma, one),
                        policy_->current().Velocity(inputs.x, inputs.sigma, five)));
}

INSTANTIATE_TEST_SUITE_P(Trained, RowInvarianceTest,
                         ::testing::Values(Trained::kFull, Trained::kLora));

}  // namespace
}  // namespace oxbow::model
