// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/linear_groups.h"

#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace oxbow::model::exported {
namespace {

// By input, autocast and whether there are biases.
using OpenGroups = std::map<std::tuple<Slot, bool, bool>, std::vector<size_t>>;

void Close(OpenGroups& open, std::vector<std::vector<size_t>>& groups) {
  for (auto& [key, nodes] : open) {
    if (nodes.size() > 1) groups.push_back(std::move(nodes));
  }
  open.clear();
}

}  // namespace

std::vector<std::vector<size_t>> LinearGroups(const Program& program) {
  std::set<size_t> fused;
  for (const auto& [first, fusion] : program.fusions) {
    for (size_t i = fusion.first; i < fusion.end; ++i) fused.insert(i);
  }
  std::vector<std::vector<size_t>> groups;
  for (const Section& section : program.sections) {
    OpenGroups open;
    for (size_t i = section.first; i < section.end; ++i) {
      const GraphNode& node = program.graph.nodes[i];
      if (node.op.ends_with('_')) Close(open, groups);  // It may write to an input.
      const auto linear = program.linears.find(i);
      if (linear == program.linears.end() || linear->second.float32 || program.folded[i] ||
          fused.contains(i)) {
        continue;
      }
      open[{linear->second.input, node.autocast, HasBias(node)}].push_back(i);
    }
    Close(open, groups);
  }
  return groups;
}

bool HasBias(const GraphNode& linear) { return SlotOf(linear, "bias") != kNoSlot; }

}  // namespace oxbow::model::exported
