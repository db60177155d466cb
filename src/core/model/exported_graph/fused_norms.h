// SPDX-License-Identifier: Apache-2.0
// RMS norms that a network spells out, x rsqrt(mean(x^2) + eps) weight, as one call each: on a GPU
// one kernel instead of six, and fewer values are kept for the backward pass.
#pragma once

#include <ATen/core/stack.h>

#include "core/model/exported_graph/graph.h"

namespace oxbow::model::exported {

// Every such chain of nodes becomes one aten::rms_norm; blocks move with it. A chain stays where
// anything else reads a value inside it, where it crosses the end of a block, and around a node
// that writes in place. Requires a graph that Compile took.
Graph FuseRmsNorms(Graph graph);

// aten::rms_norm with its arguments on the stack, which it replaces by the result, with gradients.
// False, and nothing is done, for what the operator itself does as well. Values have the bits of
// the spelled-out norm on the CPU; gradients differ by rounding.
bool NormalizeRms(torch::jit::Stack& stack);

}  // namespace oxbow::model::exported
