// SPDX-License-Identifier: Apache-2.0
// Layers as one CUDA kernel each, differentiable. Each returns nullopt where it does
// not apply: without a GPU or CUDA's compiler in the build, for shapes or types that the kernels do
// not take, and where weight, scale, shift or gate want a gradient. The caller then computes the
// same of PyTorch's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace oxbow::model::fused {

bool HasKernels();

// Tokens x [B, T, D], float32 or bfloat16, under conditions that broadcast to them: of one value a
// column, a sample or a token ([D], [B, 1, D], [B, T, D]). Undefined conditions are 0.

// (x - mean(x)) / sqrt(var(x) + eps) (base + scale) + shift over the width, in the type `out`.
struct TokenModulation {
  at::Tensor scale, shift;
  double base = 1;
};
std::optional<at::Tensor> NormTokens(const at::Tensor& x, const TokenModulation& by, double eps,
                                     at::ScalarType out);

// x + gate y, in the type `out`.
std::optional<at::Tensor> GateTokens(const at::Tensor& x, const at::Tensor& gate,
                                     const at::Tensor& y, at::ScalarType out);

}  // namespace oxbow::model::fused
