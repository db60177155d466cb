// SPDX-License-Identifier: Apache-2.0
// The inputs of a network besides latents and noise level: named tensors, one row per sample.
//
// The architecture says which parts there are (architecture.h): token features of a prompt,
// a pooled vector, a mask, a guidance scale. Code between the text encoders and the network treats
// all parts alike. Sees of torch only the name of a device.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/named_tensors.h"

namespace oxbow::model {

// Every part is [B, ...], or [1, ...] to be broadcast over samples.
using Conditioning = NamedTensors;

// Names that architectures share with the text sides that make these parts.
inline constexpr char kPromptTokens[] = "tokens";  // Features of each token, [B, S, C].
inline constexpr char kPooledPrompt[] = "pooled";  // Features of the whole prompt, [B, P].

// Stands in a part's shape for the number of tokens of a prompt.
inline constexpr int64_t kPromptLength = -1;

struct ConditioningPart {
  enum class Values {
    kReal,  // float32.
    kMask,  // float32: 1 for what counts, 0 for padding.
  };
  std::string name;
  std::vector<int64_t> shape;  // One row's: {kPromptLength, 4096}, {2048}, or {} for a number.
  Values values = Values::kReal;
};

// The shape of a part for `rows` prompts of `tokens` tokens.
std::vector<int64_t> ShapeOf(const ConditioningPart& part, int64_t rows, int64_t tokens);

// Bytes of one prompt's parts in float32, as they travel and are stored.
uint64_t ConditioningBytes(const std::vector<ConditioningPart>& parts, int64_t tokens);

// Tokens of the prompts in `conditioning`; `absent` if it has no part that says so.
int64_t PromptLengthOf(const std::vector<ConditioningPart>& parts, const Conditioning& conditioning,
                       int64_t absent);

// Bytes of all parts in memory.
uint64_t BytesOf(const Conditioning& conditioning);

// Every part on `device`.
Conditioning MovedTo(const Conditioning& conditioning, at::Device device);

// Rows `first` to `first + count - 1` of every part, as views.
Conditioning NarrowRows(const Conditioning& conditioning, int64_t first, int64_t count);

// Row index[i] of every part as row i. `index` may be on another device than the parts.
Conditioning SelectRows(const Conditioning& conditioning, const at::Tensor& index);

// The rows of all, one after another. Requires at least one, and the same parts in each.
Conditioning ConcatRows(const std::vector<Conditioning>& conditionings);

// Every part with as many rows as asked for: as it is, or its one row broadcast.
Conditioning BroadcastRows(const Conditioning& conditioning, int64_t rows);

}  // namespace oxbow::model
