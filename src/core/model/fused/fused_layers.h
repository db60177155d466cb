// SPDX-License-Identifier: Apache-2.0
// Layers as one CUDA kernel each, differentiable. Each returns nullopt where it does
// not apply: without a GPU or CUDA's compiler in the build, for shapes or types that the kernels do
// not take, and where weight, scale, shift or gate want a gradient. The caller then computes the
// same of PyTorch's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace oxbow::model::fused {

bool HasKernels();

// Tokens x [B, T, D], float32 or bfloat16, under conditions that broadcast to them: of one value a
// column, a sample or a token ([D], [B, 1, D], [B, T, D]). Undefined conditions are 0.

// (x - mean(x)) / sqrt(var(x) + eps) (base + scale) + shift over the width, in the type `out`: one
// result for each of `by`, which has one or two of the same base and `centred`. None, and nothing
// is done, where no kernel applies. Not `centred`: x / sqrt(mean(x^2) + eps) instead.
struct TokenModulation {
  at::Tensor scale, shift;
  double base = 1;
  bool centred = true;
};
std::vector<at::Tensor> NormTokens(const at::Tensor& x, const std::vector<TokenModulation>& by,
                                   double eps, at::ScalarType out);

// x + gate y, in the type `out`.
std::optional<at::Tensor> GateTokens(const at::Tensor& x, const at::Tensor& gate,
                                     const at::Tensor& y, at::ScalarType out);

}  // namespace oxbow::model::fused
