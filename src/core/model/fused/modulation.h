// SPDX-License-Identifier: Apache-2.0
// Modulated norms and gated sums on a CPU, float32, as one pass each (modulation_kernel.h),
// differentiable in all they take. Each returns nullopt where it does not apply: on another device,
// for other types, and for widths or layouts that the passes do not take. The caller then computes
// the same of PyTorch's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace oxbow::model::fused {

// x [B, T, D]; scale, shift [B, D].
std::optional<at::Tensor> NormModulateOnCpu(const at::Tensor& x, const at::Tensor& scale,
                                            const at::Tensor& shift, double eps);

// x, y [B, T, D]; gate [B, D].
std::optional<at::Tensor> AddGatedOnCpu(const at::Tensor& x, const at::Tensor& gate,
                                        const at::Tensor& y);

}  // namespace oxbow::model::fused
