// SPDX-License-Identifier: Apache-2.0
// The RMS norm x rsqrt(mean(x^2) + eps) weight over the last size: on a GPU one kernel, and on a
// CPU a backward pass that keeps x and one number a row.
#pragma once

#include <ATen/core/stack.h>

namespace oxbow::model::exported {

// aten::rms_norm with its arguments on the stack, which it replaces by the result, with gradients.
// False, and nothing is done, for what the operator itself does as well. Values have the bits of
// the spelled-out norm on the CPU; gradients differ by rounding.
bool NormalizeRms(torch::jit::Stack& stack);

}  // namespace oxbow::model::exported
