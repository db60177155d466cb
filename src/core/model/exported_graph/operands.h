// SPDX-License-Identifier: Apache-2.0
// Values that are only ever read as operands of products: under autocast each reader would round
// them to the type of products, so they may be rounded once, where they are made, with the same
// results.
#pragma once

#include <vector>

#include "core/model/exported_graph/folding.h"
#include "core/model/exported_graph/program.h"

namespace oxbow::model::exported {

// By slot: true for a value that linear layers and attention alone read, directly or through views,
// joins and casts to float32. False for what anything writes in place. Requires program.linears.
std::vector<bool> OperandSlots(const Program& program, const SharedMemory& memory);

// By node: true for a cast to float32 whose result is such a value. One that is rounded already
// needs no cast.
std::vector<bool> NeedlessCasts(const Program& program);

}  // namespace oxbow::model::exported
