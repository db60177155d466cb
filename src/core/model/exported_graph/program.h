// SPDX-License-Identifier: Apache-2.0
// A graph made ready to run, without weights: operators resolved, and what follows from who reads
// and writes what. All networks of one architecture share it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/fused_call.h"
#include "core/model/exported_graph/fusions.h"
#include "core/model/exported_graph/graph.h"
#include "core/model/exported_graph/operator_call.h"
#include "core/model/exported_graph/symbolic_call.h"

namespace oxbow::model::exported {

using Step = std::variant<OperatorCall, SymbolicCall>;

// A run of nodes: a block, or what is between two.
struct Section {
  size_t first = 0;
  size_t end = 0;
  bool block = false;
  std::vector<Slot> reads;   // Values that nodes, inputs or folding made before it.
  std::vector<Slot> writes;  // Values that are read after it.
};

// A linear layer and the node that computes it.
struct LinearNode {
  std::string module;
  Slot input = kNoSlot;
  Slot output = kNoSlot;
  bool float32 = false;  // As its weight.
};

struct Program {
  Graph graph;
  std::vector<Step> steps;              // One per node.
  std::vector<Section> sections;        // All nodes, in order.
  std::vector<std::vector<Slot>> last;  // By node: values that nothing reads after it.

  // Nodes that depend on the inputs' sizes alone: position tables, frequencies. They run once per
  // size, before the others.
  std::vector<bool> folded;              // By node.
  std::vector<Slot> folded_results;      // Values of theirs that the other nodes read.
  std::set<std::string> folded_symbols;  // The sizes that they depend on.

  std::map<size_t, LinearNode> linears;       // By node.
  std::vector<std::vector<size_t>> together;  // Nodes of linear_groups.h.

  std::vector<bool> operands;        // By slot (operands.h).
  std::vector<bool> needless_casts;  // By node, where its argument has the type of products.

  std::map<size_t, Fusion> fusions;  // By first node.
  std::shared_ptr<FusionVerdicts> verdicts =
      std::make_shared<FusionVerdicts>();  // All networks share them.
};

// kInvalidArgument names the node for an operator that is not allowed, an argument that does not
// fit its schema, a value written in place that is a weight or an input.
absl::StatusOr<std::shared_ptr<const Program>> Compile(Graph graph);

// The slots that a node reads.
std::vector<Slot> ReadsOf(const GraphNode& node);

// How often nodes and outputs read each slot.
std::map<Slot, int> ReadCounts(const Graph& graph);

// The slot that an argument is; kNoSlot if it is none or left out.
Slot SlotOf(const GraphNode& node, std::string_view argument);

}  // namespace oxbow::model::exported
