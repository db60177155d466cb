// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/joint_heads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace oxbow::model::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kParts = 3;          // Queries, keys, values.
constexpr int64_t kHeadGrain = 32768;  // Values of a thread's share, at least.

bool AreSideBySide(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.dim() == 3 && x.is_contiguous();
}

// Where a stream's tokens are among the joint ones.
struct Stream {
  int64_t tokens = 0;
  int64_t parts = kParts;
  int64_t first = 0;  // Its first token in a part.
};

// Calls `move(side by side, heads)` for each head of each token of part `p`: d values in the
// stream's tokens [B, tokens, parts * D], and the same d of the joint part [B, T, heads, d].
template <class Move>
void ForHeads(const Stream& stream, int64_t p, float* tokens, const at::Tensor& joint,
              const Move& move) {
  const int64_t heads = joint.size(2), d = joint.size(3), width = heads * d;
  const int64_t place = p - (kParts - stream.parts);  // Among the stream's parts.
  if (place < 0) return;
  float* const values = const_cast<float*>(joint.const_data_ptr<float>());
  at::parallel_for(
      0, joint.size(0) * stream.tokens, kHeadGrain / width + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t b = i / stream.tokens, t = i % stream.tokens;
          float* const mine = tokens + (i * stream.parts + place) * width;
          float* const theirs = values + b * joint.stride(0) + (stream.first + t) * joint.stride(1);
          for (int64_t h = 0; h < heads; ++h) {
            move(mine + h * d, theirs + h * joint.stride(2), d);
          }
        }
      });
}

std::array<Stream, 2> StreamsOf(const at::Tensor& image, const at::Tensor& context) {
  const int64_t width = image.size(2) / kParts;
  return {
      Stream{.tokens = image.size(1)},
      Stream{.tokens = context.size(1), .parts = context.size(2) / width, .first = image.size(1)}};
}

variable_list Joint(const at::Tensor& image, const at::Tensor& context, int64_t heads) {
  const auto streams = StreamsOf(image, context);
  const std::array<const at::Tensor*, 2> sources = {&image, &context};
  variable_list parts;
  for (int64_t p = 0; p < kParts; ++p) {
    const bool both = p >= kParts - streams[1].parts;
    parts.push_back(at::empty({image.size(0), image.size(1) + (both ? context.size(1) : 0), heads,
                               image.size(2) / kParts / heads},
                              image.options()));
    for (size_t s = 0; s < streams.size(); ++s) {
      ForHeads(streams[s], p, const_cast<float*>(sources[s]->const_data_ptr<float>()), parts.back(),
               [](const float* mine, float* theirs, int64_t d) { std::copy_n(mine, d, theirs); });
    }
  }
  return parts;
}

struct JointFunction : torch::autograd::Function<JointFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& image,
                               const at::Tensor& prompt, int64_t heads) {
    context->saved_data["image"] = image.sizes().vec();
    context->saved_data["prompt"] = prompt.sizes().vec();
    context->saved_data["heads"] = heads;
    return Joint(image, prompt, heads);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    OXBOW_CHECK(!at::GradMode::is_enabled()) << "heads that are joined are differentiable once";
    at::Tensor image =
        at::empty(context->saved_data["image"].toIntVector(), gradients[2].options());
    at::Tensor prompt = at::empty(context->saved_data["prompt"].toIntVector(), image.options());
    const auto streams = StreamsOf(image, prompt);
    const std::array<at::Tensor*, 2> results = {&image, &prompt};
    for (int64_t p = 0; p < kParts; ++p) {
      at::Tensor joint = gradients[static_cast<size_t>(p)];
      if (joint.stride(3) != 1) joint = joint.contiguous();
      for (size_t s = 0; s < streams.size(); ++s) {
        ForHeads(streams[s], p, results[s]->mutable_data_ptr<float>(), joint,
                 [](float* mine, const float* theirs, int64_t d) { std::copy_n(theirs, d, mine); });
      }
    }
    return {image, prompt, {}};
  }
};

}  // namespace

std::optional<std::vector<at::Tensor>> JointHeadsOnCpu(const at::Tensor& image,
                                                       const at::Tensor& context, int64_t heads) {
  if (!AreSideBySide(image) || !AreSideBySide(context)) return std::nullopt;
  const int64_t width = image.size(2) / kParts;
  OXBOW_CHECK(heads > 0 && width > 0 && image.size(2) == kParts * width && width % heads == 0)
      << image.sizes() << " for " << heads << " heads";
  OXBOW_CHECK(context.size(0) == image.size(0) &&
              (context.size(2) == kParts * width || context.size(2) == (kParts - 1) * width))
      << context.sizes() << " beside " << image.sizes();
  const bool trains =
      at::GradMode::is_enabled() && (image.requires_grad() || context.requires_grad());
  return trains ? JointFunction::apply(image, context, heads) : Joint(image, context, heads);
}

}  // namespace oxbow::model::fused
