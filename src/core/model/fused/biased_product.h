// SPDX-License-Identifier: Apache-2.0
// A linear layer's product with its bias on a CPU, in float32: PyTorch's bits, without the pass by
// which its operator spreads the bias over the result.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace oxbow::model::fused {

// rows W^T + bias, differentiable. rows [n, in], weight [out, in], bias [out]. nullopt where it
// does not apply: on another device, for other types, and for a bias with gaps.
std::optional<at::Tensor> BiasedProductOnCpu(const at::Tensor& rows, const at::Tensor& weight,
                                             const at::Tensor& bias);

}  // namespace oxbow::model::fused
