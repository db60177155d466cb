// SPDX-License-Identifier: Apache-2.0
// Recomputed blocks give the same velocities and gradients as blocks that keep everything.
#include "core/model/recompute.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "core/model/policy.h"
#include "gtest/gtest.h"
#include "tests/testing/small_sd3.h"

namespace oxbow::model {
namespace {

// With random weights, and an adapter where one trains.
std::unique_ptr<Policy> Drawn(Policy::Options options) {
  const bool lora = options.trained == Trained::kLora;
  for (const auto& [name, shape] : options.architecture->shapes())
    options.base[name] = at::randn(shape) * 0.3;
  options.lora = {.rank = 3, .alpha = 6, .targets = {"attn.to_q", "attn.to_v", "ff.net.2"}};
  auto policy = *Policy::Create(std::move(options));
  if (lora) {  // B starts at zero, and with it the gradient of A.
    at::Tensor(policy->parameters().flat()).add_(at::randn({policy->parameters().numel()}) * 0.2);
  }
  return policy;
}

std::unique_ptr<Policy> PolicyOf(Trained trained, bool recompute,
                                 at::ScalarType compute = at::kFloat) {
  at::manual_seed(3);
  return Drawn({.architecture = SmallSd3(/*blocks=*/3, /*dual=*/1),
                .trained = trained,
                .compute = compute,
                .checkpoint_activations = recompute});
}

// Two passes through the policy in one loss, as with an anchor.
at::Tensor LossOf(const Policy& policy) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({3, 2, 8, 6}), y = at::randn({4, 2, 4, 8});
  const Conditioning conditioning{{kPromptTokens, at::randn({1, 5, 12})},
                                  {kPooledPrompt, at::randn({1, 10})}};
  return policy.current().Velocity(x, at::rand({3}), conditioning).square().mean() +
         policy.current().Velocity(y, at::rand({4}), conditioning).abs().mean();
}

class RecomputeTest : public ::testing::TestWithParam<Trained> {};

// Promise: Micro-batches and activation checkpointing change no result.
TEST_P(RecomputeTest, LossHasTheSameBitsAndGradientsAgree) {
  at::set_num_threads(1);
  const auto kept = PolicyOf(GetParam(), false), again = PolicyOf(GetParam(), true);
  const at::Tensor loss = LossOf(*kept), loss_again = LossOf(*again);
  EXPECT_TRUE(at::equal(loss, loss_again));
  for (Policy* policy : {kept.get(), again.get()}) policy->parameters().ZeroGrad();
  loss.backward();
  loss_again.backward();
  for (const auto& [name, tensor] : kept->parameters().tensors()) {
    EXPECT_TRUE(at::allclose(tensor.grad(), again->parameters().Get(name).grad(), 1e-4, 1e-5))
        << name << " " << (tensor.grad() - again->parameters().Get(name).grad()).abs().max();
  }
  EXPECT_GT(kept->parameters().flat_grad().abs().max().item<float>(), 0);
}

struct CountGradients final : torch::autograd::PostAccumulateGradHook {
  explicit CountGradients(int& count) : count_(count) {}
  void operator()(const at::Tensor&) override { ++count_; }
  int& count_;
};

// A hook of the gradient's sum over ranks dies when a leaf gets a second gradient.
// Promise: Micro-batches and activation checkpointing change no result.
TEST_P(RecomputeTest, EveryLeafGetsItsGradientOnce) {
  const auto policy = PolicyOf(GetParam(), true);
  std::map<std::string, int> gradients;
  for (const auto& [name, tensor] : policy->parameters().tensors()) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        tensor, std::make_unique<CountGradients>(gradients[name]));
  }
  LossOf(*policy).backward();
  for (const auto& [name, count] : gradients) EXPECT_EQ(count, 1) << name;
  EXPECT_GT(gradients.size(), 10u);
}

TEST_P(RecomputeTest, ShorterProductsAreCloseAndTrainedWeightsStayFloat32) {
  const auto exact = PolicyOf(GetParam(), false);
  const auto shorter = PolicyOf(GetParam(), false, at::kBFloat16);
  const auto again = PolicyOf(GetParam(), true, at::kBFloat16);
  const at::Tensor loss = LossOf(*exact), rough = LossOf(*shorter), rough_again = LossOf(*again);
  EXPECT_EQ(rough.scalar_type(), at::kFloat);
  EXPECT_NEAR(rough.item<float>() / loss.item<float>(), 1, 0.02);
  EXPECT_FALSE(at::equal(loss, rough));
  EXPECT_TRUE(at::equal(rough, rough_again));
  loss.backward();
  rough.backward();
  rough_again.backward();
  EXPECT_EQ(shorter->parameters().flat().scalar_type(), at::kFloat);
  const auto direction = [&](const Policy& policy) {
    return at::cosine_similarity(exact->parameters().flat_grad(),
                                 const_cast<Policy&>(policy).parameters().flat_grad(), 0)
        .item<float>();
  };
  EXPECT_GT(direction(*shorter), 0.99);
  EXPECT_GT(direction(*again), 0.99);
}

// A guided LoRA, whose loss has two passes.
std::unique_ptr<Policy> GuidedOf(bool apart, bool inputs_on_host) {
  at::manual_seed(3);
  return Drawn(
      {.architecture = SmallSd3(/*blocks=*/3, /*dual=*/1),
       .trained = Trained::kLora,
       .guidance = 3,
       .negative = {{kPromptTokens, at::randn({1, 5, 12})}, {kPooledPrompt, at::randn({1, 10})}},
       .checkpoint_activations = true,
       .inputs_on_host = inputs_on_host,
       .guided_apart = apart});
}

// Promise: Micro-batches and activation checkpointing change no result.
TEST(GuidedHalvesTest, ApartTheyHaveTheSameLossAndInputsOnTheHostTheSameBits) {
  at::set_num_threads(1);
  const auto gradient = [](Policy& policy, at::Tensor& loss) {
    policy.parameters().ZeroGrad();
    loss = LossOf(policy);
    loss.backward();
    return policy.parameters().flat_grad().clone();
  };
  at::Tensor loss, loss_apart, loss_on_host;
  const at::Tensor together = gradient(*GuidedOf(false, false), loss);
  const at::Tensor apart = gradient(*GuidedOf(true, false), loss_apart);
  EXPECT_TRUE(at::equal(loss, loss_apart)) << loss << loss_apart;
  EXPECT_TRUE(at::allclose(together, apart, 1e-4, 1e-5)) << (together - apart).abs().max();
  EXPECT_GT(apart.abs().max().item<float>(), 0);
  EXPECT_TRUE(at::equal(gradient(*GuidedOf(false, true), loss_on_host), together));
  EXPECT_TRUE(at::equal(gradient(*GuidedOf(true, true), loss_on_host), apart));
  EXPECT_TRUE(at::equal(loss, loss_on_host));
}

// Promise: Micro-batches and activation checkpointing change no result.
TEST(GuidedHalvesTest, EveryLeafGetsItsGradientOnce) {
  const auto policy = GuidedOf(true, true);
  std::map<std::string, int> gradients;
  for (const auto& [name, tensor] : policy->parameters().tensors()) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        tensor, std::make_unique<CountGradients>(gradients[name]));
  }
  LossOf(*policy).backward();
  for (const auto& [name, count] : gradients) EXPECT_EQ(count, 1) << name;
}

INSTANTIATE_TEST_SUITE_P(Trained, RecomputeTest, ::testing::Values(Trained::kFull, Trained::kLora),
                         [](const auto& info) {
                           return info.param == Trained::kFull ? "Full" : "Lora";
                         });

}  // namespace
}  // namespace oxbow::model
