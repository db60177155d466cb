// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/shared_nodes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/model/exported_graph/program.h"

namespace oxbow::model::exported {
namespace {

void RenameSlots(const std::map<Slot, Slot>& names, Value& value) {
  if (auto* ref = std::get_if<SlotRef>(&value.is)) {
    if (const auto found = names.find(ref->slot); found != names.end()) ref->slot = found->second;
  } else if (auto* list = std::get_if<Value::List>(&value.is)) {
    for (Value& element : *list) RenameSlots(names, element);
  }
}

bool MadeIn(const Graph& graph, const GraphBlock& block, Slot slot) {
  for (size_t i = block.first; i < block.end; ++i) {
    if (std::ranges::find(graph.nodes[i].outputs, slot) != graph.nodes[i].outputs.end())
      return true;
  }
  return false;
}

// The makers of these slots stand before the blocks that they are in, where nothing of a block
// makes their input. Nodes that stay keep their order.
Graph BeforeTheirBlocks(Graph graph, const std::set<Slot>& slots) {
  for (GraphBlock& block : graph.blocks) {
    for (size_t i = block.first; i < block.end; ++i) {
      const GraphNode& node = graph.nodes[i];
      if (node.outputs.empty() || !slots.contains(node.outputs[0]) ||
          MadeIn(graph, block, SlotOf(node, "self")))
        continue;
      const auto begin = graph.nodes.begin();
      std::rotate(begin + static_cast<ptrdiff_t>(block.first), begin + static_cast<ptrdiff_t>(i),
                  begin + static_cast<ptrdiff_t>(i + 1));
      ++block.first;
    }
  }
  return graph;
}

}  // namespace

Graph WithoutNodes(Graph graph, const std::vector<bool>& gone) {
  std::vector<size_t> moved = {0};  // By node: where it is now.
  std::vector<GraphNode> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!gone[i]) nodes.push_back(std::move(graph.nodes[i]));
    moved.push_back(nodes.size());
  }
  for (GraphBlock& block : graph.blocks) {
    block.first = moved[block.first];
    block.end = moved[block.end];
  }
  graph.nodes = std::move(nodes);
  return graph;
}

Graph ShareActivations(Graph graph) {
  if (std::ranges::any_of(graph.nodes, [](const GraphNode& n) { return n.op.ends_with('_'); })) {
    return graph;
  }
  std::map<std::pair<Slot, bool>, Slot> made;  // By input and autocast.
  std::map<Slot, Slot> names;
  std::set<Slot> shared;
  std::vector<bool> gone(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& node = graph.nodes[i];
    for (auto& [name, value] : node.arguments) RenameSlots(names, value);
    if (node.op != "aten::silu") continue;
    const auto [first, fresh] =
        made.emplace(std::pair(SlotOf(node, "self"), node.autocast), node.outputs[0]);
    if (fresh) continue;
    names[node.outputs[0]] = first->second;
    shared.insert(first->second);
    gone[i] = true;
  }
  for (GraphOutput& output : graph.outputs) {
    if (const auto found = names.find(output.slot); found != names.end()) {
      output.slot = found->second;
    }
  }
  return BeforeTheirBlocks(WithoutNodes(std::move(graph), gone), shared);
}

}  // namespace oxbow::model::exported
