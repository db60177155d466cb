// SPDX-License-Identifier: Apache-2.0
// Chains of nodes that make queries and keys of linear layers' results.
#pragma once

#include <set>
#include <vector>

#include "core/model/exported_graph/fusions.h"

namespace oxbow::model::exported {

// A fusion and the places of its nodes in a graph, before they are moved together.
struct Chain {
  Fusion fusion;
  std::set<size_t> nodes;
};

// Behind each attention: RMS norms of heads or whole tokens, turns of neighbouring values, spelled
// out or complex, and joins along tokens. Others than these nodes read nothing inside of a chain.
std::vector<Chain> FindHeads(const Graph& graph);

}  // namespace oxbow::model::exported
