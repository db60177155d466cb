// SPDX-License-Identifier: Apache-2.0
// A convolution whose windows do not overlap, as a matrix product: the embedding of patches. The
// libraries choose a convolution's kernel by the size of the batch, and a row's bits with it.
#pragma once

#include <ATen/core/stack.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace oxbow::model::exported {

bool AllAre(const std::vector<int64_t>& numbers, int64_t wanted);

// Whether the operator is a convolution that gives its padding in numbers.
bool IsConvolution(std::string_view name, std::string_view overload);

// Replaces the arguments of such an operator by its result, x [B, C, sizes] -> [B, O, sizes / k].
// False, and the arguments as they were, unless strides are the kernel's sizes k, which divide
// x's, without padding, dilation and groups.
bool ConvolvePatches(torch::jit::Stack& stack);

}  // namespace oxbow::model::exported
