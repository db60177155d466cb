// SPDX-License-Identifier: Apache-2.0
// Results of the right shape and type for operators that LibTorch alone cannot run on tensors
// without values (dry_run.h): their kernels for that are Python's.
#pragma once

#include <ATen/core/stack.h>

#include <string>

namespace oxbow::model::exported {

// Puts the result in the arguments' place. False for an operator that has no stand-in.
bool StandIn(const std::string& op, torch::jit::Stack& stack);

}  // namespace oxbow::model::exported
