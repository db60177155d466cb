// SPDX-License-Identifier: Apache-2.0
// Queries, keys and values of two streams of tokens as joint attention reads them, on a CPU in
// float32, from the two products that made them: one pass forward and one back, where PyTorch's
// operators split, join and copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace oxbow::model::fused {

// image [B, N, 3D] has queries, keys and values side by side; context [B, S, 3D], too, or [B, S,
// 2D] without queries. Returns q, k, v [B, T, heads, d], image tokens first; T is N + S, and N for
// queries that context has not. Differentiable once. nullopt on another device and for other types.
std::optional<std::vector<at::Tensor>> JointHeadsOnCpu(const at::Tensor& image,
                                                       const at::Tensor& context, int64_t heads);

}  // namespace oxbow::model::fused
