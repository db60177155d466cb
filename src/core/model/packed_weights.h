// SPDX-License-Identifier: Apache-2.0
// Weights of linear layers in the layout by which oneDNN multiplies fastest, for networks that run
// forward alone, on the CPU and in float32. A packed weight is opaque: only PackedProduct
// reads it, and no gradient flows through it. Products differ from those of plain weights by
// rounding.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/model/named_tensors.h"

namespace oxbow::model {

enum class LinearWeights { kPlain, kPacked };

// A weight [out, in] packed; itself on another device, in another type, and where LibTorch was
// built without oneDNN.
at::Tensor Packed(const at::Tensor& weight);

// Packs the weight of each module that is there. A plain one dies before the next is packed, if
// nobody else holds it.
void PackLinears(const LinearModules& modules, NamedTensors& weights);

// rows W^T + bias. rows [n, in]; bias [out] or undefined. A row's bits do not depend on the others,
// on one torch thread.
at::Tensor PackedProduct(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace oxbow::model
