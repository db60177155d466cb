// SPDX-License-Identifier: Apache-2.0
// Linear layers of one input whose weights do not train, perhaps with low-rank adapters, on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/model/layers.h"

namespace oxbow::model {

// Whether ApplyFrozen takes layers at once: where their weights lie side by side
// (side_by_side.h), and biases too or none has one; or where they are alike, with adapters and of
// the same shapes.
bool GoSideBySide(at::ArrayRef<Linear> linears);
bool AreAlike(const Linear& a, const Linear& b);

// The matrices of layers' adapters, flat: each A [r, in], then each B [out, r]. ApplyFrozen reads
// them side by side in the type of products. Empty where it takes no such layers.
std::vector<at::Tensor> FlatMatrices(at::ArrayRef<Linear> linears);

// y_i = x W_i^T + b_i + scale (x A_i^T) B_i^T of each: [..., in] -> [..., out_i]. Weights side by
// side are one product, whose columns the results are. The adapters are two products for all
// layers, x [A_0; A_1; ...]^T and a batch of B_i^T that is added in place. `matrices` are those of
// FlatMatrices in one tensor; where it is undefined, they are rounded here. Gradients of x, A_i and
// B_i alone. Empty, and nothing is done, if x is on no GPU or the layers do not go together; one
// layer must have an adapter.
std::vector<at::Tensor> ApplyFrozen(const at::Tensor& x, at::ArrayRef<Linear> linears,
                                    const at::Tensor& matrices = {});

}  // namespace oxbow::model
