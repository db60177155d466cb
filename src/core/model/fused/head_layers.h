// SPDX-License-Identifier: Apache-2.0
// Queries and keys as attention reads them: heads normalised, turned by the angles of their tokens
// and joined along tokens, by one CUDA kernel for each part and with gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace oxbow::model::fused {

// turn(x rsqrt(mean(x^2) + eps) weight), where neighbouring values a, b of a head become
// a cos - b sin, b cos + a sin.
struct HeadPart {
  at::Tensor x;        // [B, T, heads, d], float32 or bfloat16
  bool norm = false;   // Without it the values are turned alone.
  bool whole = false;  // The mean is that of a token's heads together, not of each one's.
  double eps = 0;
  at::Tensor weight;  // [d], or [heads * d] with `whole`; undefined: 1.
  // Angles in float32, broadcasting to x along all but tokens; or undefined: nothing turns. Without
  // `sin`, `cos` is complex and has one number for each pair of values.
  at::Tensor cos, sin;
};

// The parts [B, sum of T, heads, d], in the type `out`. nullopt without a GPU or CUDA's compiler in
// the build, for shapes or types that no kernel takes, and where a weight wants a gradient.
std::optional<at::Tensor> JoinHeads(const std::vector<HeadPart>& parts, at::ScalarType out);

}  // namespace oxbow::model::fused
