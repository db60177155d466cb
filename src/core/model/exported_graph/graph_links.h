// SPDX-License-Identifier: Apache-2.0
// Makers and readers of the values of a graph, for rules that look for chains of nodes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "core/model/exported_graph/graph.h"

namespace oxbow::model::exported {

// Null if the node has no such argument.
const Value* ArgumentOf(const GraphNode& node, std::string_view name);
// The argument as a number, whole or not.
std::optional<double> NumberAt(const GraphNode& node, std::string_view name);

// True for a cast to float32, or to the type of another value.
bool IsCastToFloat(const GraphNode& node);
// True for a sum of two values without a factor.
bool IsSum(const GraphNode& node);
// True for a mean over the last size, which stays as one.
bool IsMeanOfLastSize(const GraphNode& node);

class GraphLinks {
 public:
  // Keeps a reference to the graph.
  explicit GraphLinks(const Graph& graph);

  const GraphNode& node(size_t i) const { return graph_.nodes[i]; }

  // The node of this operator that makes a value; nullopt if another does, or none.
  std::optional<size_t> MakerOf(Slot slot, std::string_view op) const;
  // The same where one node alone reads the value, once.
  std::optional<size_t> OwnMakerOf(Slot slot, std::string_view op) const;
  // The only node that reads a value, once.
  std::optional<size_t> OnlyReaderOf(Slot slot) const;
  // The same, if it is of this operator.
  std::optional<size_t> OnlyReaderOf(Slot slot, std::string_view op) const;
  // Nodes that read a value, once for each time; SIZE_MAX: the graph's result.
  std::vector<size_t> ReadersOf(Slot slot) const;
  // Whether these nodes alone read a value.
  bool ReadWithin(Slot slot, const std::set<size_t>& nodes) const;

 private:
  const Graph& graph_;
  std::map<Slot, size_t> makers_;
  std::map<Slot, std::vector<size_t>> readers_;
};

}  // namespace oxbow::model::exported
