// SPDX-License-Identifier: Apache-2.0
// RMS norms that a network spells out, x rsqrt(mean(x^2) + eps) weight, as one node each.
#pragma once

#include "core/model/exported_graph/graph.h"

namespace oxbow::model::exported {

// Every such chain of nodes becomes one aten::rms_norm; blocks move with it. A chain stays where
// anything else reads a value inside it, where it crosses the end of a block, and around a node
// that writes in place. Requires a graph that Compile took.
Graph FuseRmsNorms(Graph graph);

}  // namespace oxbow::model::exported
