// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/model/fused/modulation_kernel.h"
#include "core/model/layers.h"
#include "core/model/sd3.h"

namespace oxbow::model {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kDoubleBytes = 8;

// Numbers per token and unit of width: those that stay float32, those of the products' type, and
// float32 copies of such, where that is another.
struct PerToken {
  int64_t exact = 0;
  int64_t computed = 0;
  int64_t copied = 0;

  PerToken& operator+=(PerToken other) {
    exact += other.exact;
    computed += other.computed;
    copied += other.copied;
    return *this;
  }
};

// A stream that passes a whole block: input and norm, the product's input, the attention's output
// made contiguous and projected; then the feed-forward's: input and norm, its input, 4 before and 4
// after the activation, its output.
constexpr PerToken kStream = {.exact = 4, .computed = 3 + 10};
// RMS norms keep the products q, k, v and the normalised q and k before their weights.
constexpr PerToken kRmsNorms = {.exact = 2, .computed = 3, .copied = 2};
// q, k, v and the output of the joint attention.
constexpr PerToken kAttention = {.computed = 4};
// The second attention: residual and norm; its input, q, k, v, output, projection.
constexpr PerToken kSecond = {.exact = 2, .computed = 6};
constexpr PerToken kSecondRmsNorms = {.exact = 2, .computed = 2, .copied = 2};
// Prompt tokens of the last block: input and norm; input of the product, k, v; their norms.
constexpr PerToken kLastContext = {.exact = 2, .computed = 3};
// The same where only adapters of the attention train, on a GPU, whose norms are one kernel each. A
// stream: residual and what the feed-forward's norm reads; the product's input, q and k before
// their norms, the attention's output, 4 before the activation.
constexpr PerToken kAdaptedStream = {.exact = 2, .computed = 8};
constexpr PerToken kAdaptedSecond = {.computed = 8};
constexpr PerToken kAdaptedLastContext = {.exact = 1, .computed = 3};
// Norms that are modulated in one pass (fused/modulation.h) keep nothing that is normalised.
constexpr int64_t kNormsOfStream = 2;
constexpr int64_t kNormsOfLastContext = 1;
constexpr int64_t kNormsOfSecond = 1;
// Without gradients, where a block holds most: residual; what both norms made; q, k, v of each
// stream and side by side; their norms.
constexpr PerToken kSampling = {.exact = 1, .computed = 16};
// Shifts, scales and gates of both streams, and what they are made from.
constexpr int64_t kModulation = 40;

struct Counter {
  const Sd3Params& params;
  int64_t product_bytes;
  int64_t rows, image, prompt;  // Tokens.
  bool adapted;
  bool in_one_pass;

  int64_t Bytes(PerToken per, int64_t tokens) const {
    return rows * tokens * params.width() *
           (per.exact * kFloatBytes + per.computed * product_bytes +
            (product_bytes == kFloatBytes ? 0 : per.copied * kFloatBytes));
  }

  bool Dual(int64_t block) const {
    const auto& dual = params.dual_attention_layers;
    return std::find(dual.begin(), dual.end(), block) != dual.end();
  }

  int64_t OfBlock(int64_t block) const {
    const bool last = block + 1 == params.num_layers;
    PerToken on_image = adapted ? kAdaptedStream : kStream;
    PerToken on_prompt = on_image;
    if (last) on_prompt = adapted ? kAdaptedLastContext : kLastContext;
    if (params.qk_rms_norm && !adapted) {
      on_image += kRmsNorms;
      on_prompt += kRmsNorms;
    }
    if (Dual(block)) on_image += adapted ? kAdaptedSecond : kSecond;
    if (in_one_pass) {
      on_image.exact -= kNormsOfStream + (Dual(block) ? kNormsOfSecond : 0);
      on_prompt.exact -= last ? kNormsOfLastContext : kNormsOfStream;
    }
    if (Dual(block) && params.qk_rms_norm && !adapted) on_image += kSecondRmsNorms;
    const int64_t tokens = image + prompt;
    // Attentions and RMS norms keep them per head.
    const int64_t statistics =
        (params.qk_rms_norm ? 6 : 2) * rows * tokens * params.num_attention_heads * kFloatBytes;
    return Bytes(on_image, image) + Bytes(on_prompt, prompt) + Bytes(kAttention, tokens) +
           statistics + kModulation * rows * params.width() * kFloatBytes + WeightsTogether(block);
  }

  // Small models put weights of one input side by side.
  int64_t WeightsTogether(int64_t block) const {
    const int64_t d = params.width();
    if (d > kTogetherWidthMax) return 0;
    return (Dual(block) ? 9 : 6) * d * (d + 1) * kFloatBytes;
  }
};

Counter CounterOf(const Sd3Params& params, const Execution& execution, const ForwardSize& size) {
  const int64_t p = params.patch_size;
  return {.params = params,
          .product_bytes = execution.compute == at::kFloat ? kFloatBytes : 2,
          .rows = size.on_cpu ? std::max(size.rows, kRowsMin) : size.rows,
          .image = size.latent_shape[1] / p * (size.latent_shape[2] / p),
          .prompt = size.prompt_tokens,
          .adapted = size.attention_adapters && !size.on_cpu,
          .in_one_pass = size.on_cpu && execution.compute == at::kFloat &&
                         params.width() % fused::kModulationLanes == 0};
}

}  // namespace

uint64_t Sd3SamplingBytes(const Sd3Params& params, const Execution& execution,
                          const ForwardSize& size) {
  const Counter count = CounterOf(params, execution, size);
  return static_cast<uint64_t>(count.Bytes(kSampling, count.image + count.prompt));
}

uint64_t Sd3ActivationBytes(const Sd3Params& params, const Execution& execution,
                            const ForwardSize& size) {
  const Counter count = CounterOf(params, execution, size);
  int64_t blocks = 0, largest = 0;
  for (int64_t i = 0; i < params.num_layers; ++i) {
    blocks += count.OfBlock(i);
    largest = std::max(largest, count.OfBlock(i));
  }
  if (execution.checkpoint_activations) {
    constexpr int64_t kInputsAtOnce = 3;
    const int64_t inputs =
        execution.inputs_on_host ? std::min(kInputsAtOnce, params.num_layers) : params.num_layers;
    blocks = largest + inputs * count.Bytes({.exact = 1}, count.image + count.prompt);
  }
  // Patches and prompts as they come, the last norm and product, and a few images of the loss.
  const int64_t ends =
      count.rows * (count.prompt * params.joint_attention_dim + count.image * 4 * params.width() +
                    params.pooled_projection_dim + 8 * params.width());
  const int64_t images =
      count.rows * size.latent_shape[1] * size.latent_shape[2] * params.in_channels * 12;
  return static_cast<uint64_t>(blocks + ends * kFloatBytes + images * kDoubleBytes);
}

}  // namespace oxbow::model
