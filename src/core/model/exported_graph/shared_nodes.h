// SPDX-License-Identifier: Apache-2.0
// Graphs with fewer nodes.
#pragma once

#include <vector>

#include "core/model/exported_graph/graph.h"

namespace oxbow::model::exported {

// The graph without these nodes, whose results nobody may read. Blocks move with the others.
Graph WithoutNodes(Graph graph, const std::vector<bool>& gone);

// The condition of a transformer goes through silu for each layer that reads it: all read what
// the first one made. That one stands before its block: results of a recomputed block want
// gradients, and then so would the condition of all later blocks. Nothing changes in a graph that
// writes in place.
Graph ShareActivations(Graph graph);

}  // namespace oxbow::model::exported
