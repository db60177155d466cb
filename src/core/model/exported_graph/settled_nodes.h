// SPDX-License-Identifier: Apache-2.0
// Nodes of a network that read weights and constants alone, such as batch norms folded into
// convolutions. A network that never trains runs them once.
#pragma once

#include "absl/status/statusor.h"
#include "core/model/exported_graph/graph.h"
#include "core/model/named_tensors.h"

namespace oxbow::model::exported {

// The graph with the results of these nodes as constants. Parameters and weights that nothing else
// reads are dropped. Nodes that write in place stay. kInvalidArgument for a graph that does not
// compile, and if an operator fails, naming the node.
absl::StatusOr<Graph> SettleNodes(Graph graph, NamedTensors& weights);

// For a network that never trains: the graph with its first outputs alone, without nodes that only
// the others need.
Graph WithOutputs(Graph graph, size_t count);

// For a network that never trains: the graph with relu and silu in place where their input was made
// by a node that hands out memory of its own (a product, a sum or a norm), and nobody else reads
// that input; and without divisions of a layer's result, or of a sum with one, by 1.
Graph OverwriteDeadInputs(Graph graph);

}  // namespace oxbow::model::exported
