// SPDX-License-Identifier: Apache-2.0
// The count against what the allocator hands out in a real forward and backward pass.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <random>

#include "core/model/policy.h"
#include "core/model/sd3.h"
#include "gtest/gtest.h"
#include "tests/testing/counting_allocator.h"

namespace oxbow::model {
namespace {

using ::oxbow::testing::CountingAllocator;

struct Measured {
  int64_t kept = 0;  // After the forward pass.
  int64_t most = 0;  // Through forward and backward pass.
};

Measured Measure(const Sd3Params& params, const Execution& execution, const ForwardSize& size,
                 Trained trained = Trained::kFull) {
  Policy::Options options{.architecture = MakeSd3Architecture(params),
                          .trained = trained,
                          .with_reference = false,
                          .with_ema = false,
                          .compute = execution.compute,
                          .checkpoint_activations = execution.checkpoint_activations};
  options.lora = {.rank = 4, .alpha = 8, .targets = {"attn.to_q", "attn.to_v"}};
  for (const auto& [name, shape] : Sd3Shapes(params)) options.base[name] = at::randn(shape) * 0.1;
  const auto policy = *Policy::Create(std::move(options));
  const int64_t before = CountingAllocator::Get().alive();
  CountingAllocator::Get().Reset();
  const at::Tensor loss =
      policy->current()
          .Velocity(at::randn({size.rows, size.latent_shape[0], size.latent_shape[1],
                               size.latent_shape[2]}),
                    at::rand({size.rows}),
                    {{kPromptTokens,
                      at::randn({size.rows, size.prompt_tokens, params.joint_attention_dim})},
                     {kPooledPrompt, at::randn({size.rows, params.pooled_projection_dim})}})
          .square()
          .sum();
  const Measured measured{.kept = CountingAllocator::Get().alive() - before};
  loss.backward();
  return {.kept = measured.kept, .most = CountingAllocator::Get().most() - before};
}

Sd3Params FourHeads(int64_t blocks, int64_t head_dim) {
  return {.patch_size = 2,
          .in_channels = 4,
          .num_layers = blocks,
          .attention_head_dim = head_dim,
          .num_attention_heads = 4,
          .joint_attention_dim = 32,
          .caption_projection_dim = 4 * head_dim,
          .pooled_projection_dim = 24,
          .out_channels = 4,
          .pos_embed_max_size = 16,
          .qk_rms_norm = true};
}

const ForwardSize kSize{.rows = 8, .latent_shape = {4, 24, 24}, .prompt_tokens = 20};

class ActivationMemoryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(1);
    CountingAllocator::Install();
  }
};

// Promise: The activation estimate is an upper bound. The figure of `oxbow validate` for a backward
// pass is at least what the forward pass keeps, and within a quarter of the peak.
TEST_F(ActivationMemoryTest, IsAnUpperBoundAndCloseOnRandomNetworks) {
  std::mt19937_64 random(5);
  const auto pick = [&](std::initializer_list<int64_t> of) {
    return *(of.begin() + static_cast<ptrdiff_t>(random() % of.size()));
  };
  for (int i = 0; i < 8; ++i) {
    Sd3Params params{.patch_size = 2,
                     .in_channels = pick({2, 4}),
                     .num_layers = pick({2, 3, 5}),
                     .attention_head_dim = pick({16, 32}),
                     .num_attention_heads = pick({2, 4, 8}),
                     .joint_attention_dim = pick({32, 96}),
                     .pooled_projection_dim = 24,
                     .pos_embed_max_size = 16,
                     .qk_rms_norm = random() % 2 == 0};
    params.caption_projection_dim = params.width();
    params.out_channels = params.in_channels;
    if (random() % 2 == 0) params.dual_attention_layers = {0, params.num_layers - 1};
    const ForwardSize size{.rows = pick({8, 11}),
                           .latent_shape = {params.in_channels, pick({16, 24}), pick({16, 32})},
                           .prompt_tokens = pick({9, 40})};
    const auto bound = static_cast<double>(Sd3ActivationBytes(params, {}, size));
    const Measured kept = Measure(params, {}, size);
    SCOPED_TRACE(::testing::Message()
                 << "width " << params.width() << ", heads " << params.num_attention_heads
                 << ", blocks " << params.num_layers << ", rms " << params.qk_rms_norm << ", dual "
                 << params.dual_attention_layers.size() << ", prompt width "
                 << params.joint_attention_dim << ", rows " << size.rows << ", latents "
                 << size.latent_shape[1] << " x " << size.latent_shape[2] << ", prompt "
                 << size.prompt_tokens << ", kept " << kept.kept / bound);
    EXPECT_LE(static_cast<double>(kept.kept), bound) << "network " << i;
    EXPECT_GE(static_cast<double>(kept.kept), 0.8 * bound) << "network " << i;
    EXPECT_LE(static_cast<double>(kept.most), 1.25 * bound) << "network " << i;
    EXPECT_LE(static_cast<double>(Measure(params, {}, size, Trained::kLora).kept), bound)
        << "network " << i;
  }
}

// Promise: The activation estimate is an upper bound.
TEST_F(ActivationMemoryTest, RecomputedBlocksTakeWhatIsSaidAndMuchLess) {
  const Sd3Params params = FourHeads(/*blocks=*/12, /*head_dim=*/16);
  const Measured kept = Measure(params, {}, kSize);
  const Execution recompute{.checkpoint_activations = true};
  const Measured recomputed = Measure(params, recompute, kSize);
  const auto bound = static_cast<double>(Sd3ActivationBytes(params, recompute, kSize));
  EXPECT_LE(static_cast<double>(recomputed.most), 1.25 * bound);
  EXPECT_GE(static_cast<double>(recomputed.most), 0.7 * bound);
  EXPECT_LT(recomputed.most, kept.most / 4);
}

TEST_F(ActivationMemoryTest, ShorterProductsTakeLess) {
  const Sd3Params params = FourHeads(/*blocks=*/4, /*head_dim=*/32);
  const Execution shorter{.compute = at::kBFloat16};
  const auto bound = static_cast<double>(Sd3ActivationBytes(params, shorter, kSize));
  const Measured measured = Measure(params, shorter, kSize, Trained::kLora);
  EXPECT_LE(static_cast<double>(measured.kept), bound);
  EXPECT_LT(bound, 0.8 * static_cast<double>(Sd3ActivationBytes(params, {}, kSize)));
}

}  // namespace
}  // namespace oxbow::model
