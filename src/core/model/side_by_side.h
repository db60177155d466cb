// SPDX-License-Identifier: Apache-2.0
// Tensors that follow one another in one piece of memory, so that a product reads several weights
// as one and none is held twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/model/named_tensors.h"

namespace oxbow::model {

// Memory without values for every tensor of `groups`, by name: those of a group side by side, in
// its order. Shapes of a group differ in their first size alone.
NamedTensors PlacedSideBySide(const std::vector<std::vector<std::string>>& groups,
                              const Shapes& shapes, at::TensorOptions options);

// Whether each of two or more tensors begins where the one before it ends.
bool LieSideBySide(at::ArrayRef<at::Tensor> tensors);

// [sum of the first sizes, ...], over their memory. Requires LieSideBySide; no gradient flows back.
at::Tensor AsOne(at::ArrayRef<at::Tensor> tensors);

}  // namespace oxbow::model
