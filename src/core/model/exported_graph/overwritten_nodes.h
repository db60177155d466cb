// SPDX-License-Identifier: Apache-2.0
// Activations of a network that never trains, computed in the memory of what they read.
#pragma once

#include "core/model/exported_graph/graph.h"

namespace oxbow::model::exported {

// The graph with relu in place where its input was made by a node that hands out memory of its own
// (a product or a sum), and nobody else reads that input.
Graph OverwriteDeadInputs(Graph graph);

}  // namespace oxbow::model::exported
