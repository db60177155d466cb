// SPDX-License-Identifier: Apache-2.0
// GELU with tanh, differentiable: one pass of gelu_kernel.h for float32 on a CPU, PyTorch's
// operator for everything else.
#pragma once

#include <ATen/core/Tensor.h>

namespace oxbow::model::fused {

at::Tensor GeluTanh(const at::Tensor& x);

}  // namespace oxbow::model::fused
