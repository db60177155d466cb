// SPDX-License-Identifier: Apache-2.0
// Linear layers of one input with low-rank adapters over frozen weights, on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/model/layers.h"

namespace oxbow::model {

// Whether ApplyAdapted takes both at once: frozen plain weights, and adapters, of the same shapes.
bool AreAlike(const Linear& a, const Linear& b);

// y_i = x W_i^T + b_i + scale (x A_i^T) B_i^T of each: [..., in] -> [..., out]. The adapters are
// two products for all layers, x [A_0; A_1; ...]^T and a batch of B_i^T that is added in place, and
// their matrices are rounded together. Gradients of x, A_i and B_i alone. Empty, and nothing is
// done, if x is on no GPU or the layers are not alike.
std::vector<at::Tensor> ApplyAdapted(const at::Tensor& x, at::ArrayRef<Linear> linears);

}  // namespace oxbow::model
