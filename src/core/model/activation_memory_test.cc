// SPDX-License-Identifier: Apache-2.0
// The count of a dry run against what the allocator hands out in a real forward and backward pass.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/model/policy.h"
#include "gtest/gtest.h"
#include "tests/testing/counting_allocator.h"
#include "tests/testing/small_sd3.h"

namespace oxbow::model {
namespace {

using ::oxbow::testing::CountingAllocator;

const std::vector<std::string> kAdapters = {"attn.to_q", "attn.to_v"};

struct Measured {
  int64_t kept = 0;  // After the forward pass.
  int64_t most = 0;  // Through forward and backward pass.
};

Measured Measure(const std::shared_ptr<const Architecture>& network, const Execution& execution,
                 const ForwardSize& size) {
  const bool adapted = !size.adapters.empty();
  Policy::Options options{.architecture = network,
                          .trained = adapted ? Trained::kLora : Trained::kFull,
                          .with_reference = false,
                          .with_ema = false,
                          .compute = execution.compute,
                          .checkpoint_activations = execution.checkpoint_activations};
  options.lora = {.rank = 1, .alpha = 2, .targets = size.adapters};
  for (const auto& [name, shape] : network->shapes()) options.base[name] = at::randn(shape) * 0.1;
  const auto policy = *Policy::Create(std::move(options));
  std::vector<int64_t> shape = size.latent_shape;
  shape.insert(shape.begin(), size.rows);
  Conditioning prompts;
  for (const ConditioningPart& part : network->conditioning()) {
    prompts[part.name] = at::randn(ShapeOf(part, size.rows, size.prompt_tokens));
  }
  const at::Tensor x = at::randn(shape), sigma = at::rand({size.rows});
  const auto loss = [&] { return policy->current().Velocity(x, sigma, prompts).square().sum(); };
  loss().backward();  // Folded values and gradients are kept between runs.
  const int64_t before = CountingAllocator::Get().alive();
  CountingAllocator::Get().Reset();
  const at::Tensor again = loss();
  const int64_t kept = CountingAllocator::Get().alive() - before;
  again.backward();
  return {.kept = kept, .most = CountingAllocator::Get().most() - before};
}

struct Counted {
  std::string graph;
  ForwardSize size;
};

std::vector<Counted> Networks() {
  return {{"tests/testing/graphs/small_3_blocks_dual_1.json.gz",
           {.rows = 32, .latent_shape = {2, 8, 8}, .prompt_tokens = 9}},
          {"tests/testing/graphs/small_5_blocks_dual_1.json.gz",
           {.rows = 64, .latent_shape = {2, 8, 6}, .prompt_tokens = 20}},
          {testing::kDigitsGraph, {.rows = 24, .latent_shape = {1, 8, 20}, .prompt_tokens = 6}},
          {"tests/testing/graphs/gpu_sized.json.gz",
           {.rows = 8, .latent_shape = {4, 16, 24}, .prompt_tokens = 40}}};
}

class ActivationMemoryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(1);
    CountingAllocator::Install();
  }
};

// Promise: The activation estimate is an upper bound. The figure of `oxbow validate` for a backward
// pass is at least what the forward pass keeps, and within a quarter of the peak.
TEST_F(ActivationMemoryTest, IsAnUpperBoundAndClose) {
  for (Counted network : Networks()) {
    const auto architecture = testing::GraphArchitecture(network.graph);
    double of_all = 0;
    for (const bool adapted : {false, true}) {
      SCOPED_TRACE(network.graph + (adapted ? ", adapters" : ", all weights"));
      if (adapted) network.size.adapters = kAdapters;
      const auto bound = static_cast<double>(architecture->ActivationBytes({}, network.size));
      const Measured measured = Measure(architecture, {}, network.size);
      RecordProperty("kept", std::to_string(static_cast<double>(measured.kept) / bound));
      EXPECT_LE(static_cast<double>(measured.kept), bound);
      EXPECT_GE(static_cast<double>(measured.kept), 0.5 * bound);
      EXPECT_LE(static_cast<double>(measured.most), 1.25 * bound);
      if (adapted) {
        EXPECT_LT(bound, 0.9 * of_all) << "what feed-forward layers take is not kept";
      }
      of_all = bound;
    }
  }
}

// Promise: The activation estimate is an upper bound.
TEST_F(ActivationMemoryTest, RecomputedBlocksTakeWhatIsSaidAndLess) {
  const auto network = SmallSd3(/*blocks=*/5, /*dual=*/1);
  const ForwardSize size{.rows = 64, .latent_shape = {2, 8, 8}, .prompt_tokens = 20};
  const Execution recompute{.checkpoint_activations = true};
  const Measured kept = Measure(network, {}, size), recomputed = Measure(network, recompute, size);
  const auto bound = static_cast<double>(network->ActivationBytes(recompute, size));
  EXPECT_LE(static_cast<double>(recomputed.most), 1.25 * bound);
  EXPECT_GE(static_cast<double>(recomputed.most), 0.5 * bound);
  EXPECT_LT(recomputed.most, kept.most / 2);
}

TEST_F(ActivationMemoryTest, ShorterProductsKeepNoMoreThanIsSaid) {
  const auto network = testing::GraphArchitecture("tests/testing/graphs/gpu_sized.json.gz");
  for (const auto& adapters : {std::vector<std::string>(), kAdapters}) {
    const ForwardSize size{
        .rows = 8, .adapters = adapters, .latent_shape = {4, 16, 24}, .prompt_tokens = 40};
    const Execution shorter{.compute = at::kBFloat16};
    const auto bound = static_cast<double>(network->ActivationBytes(shorter, size));
    EXPECT_LE(static_cast<double>(Measure(network, shorter, size).kept), bound);
    EXPECT_LE(bound, static_cast<double>(network->ActivationBytes({}, size)));
  }
}

}  // namespace
}  // namespace oxbow::model
