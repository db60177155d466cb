// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/fusions.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/model/exported_graph/fused_heads.h"
#include "core/model/exported_graph/graph_links.h"
#include "core/model/exported_graph/program.h"

namespace oxbow::model::exported {
namespace {

// Follows chains. Numbers that an operator has by default must not be given otherwise.
class ChainFinder {
 public:
  explicit ChainFinder(const Graph& graph) : graph_(graph), links_(graph) {}

  std::optional<Chain> NormAt(size_t i) const {
    const GraphNode& node = links_.node(i);
    const std::optional<double> eps = NumberAt(node, "eps");
    if (node.op != "aten::layer_norm" || !eps) return std::nullopt;
    Chain chain{.fusion = {.kind = FusionKind::kNorm, .x = SlotOf(node, "input"), .eps = *eps},
                .nodes = {i}};
    Fusion& norm = chain.fusion;
    norm.result = PastCasts(node.outputs[0], chain);
    const Slot weight = SlotOf(node, "weight"), bias = SlotOf(node, "bias");
    if (weight != kNoSlot || bias != kNoSlot) {
      norm.scale = weight;
      norm.shift = bias;
      norm.base = weight == kNoSlot ? 1 : 0;
    } else {
      Modulate(chain);
    }
    return chain;
  }

  std::optional<Chain> GateAt(size_t i) const {
    const GraphNode& sum = links_.node(i);
    if (!IsSum(sum)) return std::nullopt;
    for (const auto& [product, rest] : {std::pair("other", "self"), std::pair("self", "other")}) {
      const auto mul = links_.OwnMakerOf(SlotOf(sum, product), "aten::mul");
      const Slot x = SlotOf(sum, rest);
      if (!mul || x == kNoSlot || x == SlotOf(sum, product)) continue;
      Chain chain{.fusion = {.kind = FusionKind::kGate, .result = sum.outputs[0], .x = x},
                  .nodes = {*mul, i}};
      chain.fusion.a = BeforeCasts(SlotOf(links_.node(*mul), "self"), chain);
      chain.fusion.b = BeforeCasts(SlotOf(links_.node(*mul), "other"), chain);
      chain.fusion.exact = chain.nodes.size() > 2;
      if (chain.fusion.a == kNoSlot || chain.fusion.b == kNoSlot) continue;
      return chain;
    }
    return std::nullopt;
  }

  std::optional<Chain> JoinAt(size_t i) const {
    const GraphNode& cat = links_.node(i);
    const Value* tensors = ArgumentOf(cat, "tensors");
    const auto* list = tensors == nullptr ? nullptr : std::get_if<Value::List>(&tensors->is);
    if (cat.op != "aten::cat" || list == nullptr || list->size() != 2) return std::nullopt;
    const auto* first = std::get_if<SlotRef>(&(*list)[0].is);
    const auto* second = std::get_if<SlotRef>(&(*list)[1].is);
    if (first == nullptr || second == nullptr) return std::nullopt;
    const auto gelu = links_.OwnMakerOf(second->slot, "aten::gelu");
    if (!gelu) return std::nullopt;
    const Value* approximate = ArgumentOf(links_.node(*gelu), "approximate");
    const auto* name =
        approximate == nullptr ? nullptr : std::get_if<std::string>(&approximate->is);
    return Chain{.fusion = {.kind = FusionKind::kJoin,
                            .result = cat.outputs[0],
                            .x = first->slot,
                            .a = SlotOf(links_.node(*gelu), "self"),
                            .tanh = name != nullptr && *name == "tanh"},
                 .nodes = {*gelu, i}};
  }

  // Whether its nodes may run together, at the place of the last.
  bool Holds(const Chain& chain) const {
    const size_t first = *chain.nodes.begin(), last = *chain.nodes.rbegin();
    for (const GraphBlock& block : graph_.blocks) {
      const auto inside = [&](size_t i) { return i >= block.first && i < block.end; };
      if (inside(first) != inside(last)) return false;
    }
    return std::none_of(graph_.nodes.begin() + static_cast<ptrdiff_t>(first),
                        graph_.nodes.begin() + static_cast<ptrdiff_t>(last) + 1,
                        [](const GraphNode& node) { return node.op.ends_with('_'); });
  }

 private:
  // The value behind the casts that alone read a value.
  Slot PastCasts(Slot slot, Chain& chain) const {
    while (const auto next = links_.OnlyReaderOf(slot)) {
      if (!IsCastToFloat(links_.node(*next)) || SlotOf(links_.node(*next), "self") != slot) break;
      chain.nodes.insert(*next);
      slot = links_.node(*next).outputs[0];
    }
    return slot;
  }

  // The value before a cast to float32 that the chain alone reads.
  Slot BeforeCasts(Slot slot, Chain& chain) const {
    const auto cast = links_.OwnMakerOf(slot, "aten::to");
    if (!cast || !IsCastToFloat(links_.node(*cast))) return slot;
    chain.nodes.insert(*cast);
    return SlotOf(links_.node(*cast), "self");
  }

  // The factor 1 + scale and the shift behind a norm, where they are.
  void Modulate(Chain& chain) const {
    Fusion& norm = chain.fusion;
    if (const auto mul = links_.OnlyReaderOf(norm.result, "aten::mul")) {
      const GraphNode& product = links_.node(*mul);
      const Slot self = SlotOf(product, "self"), other = SlotOf(product, "other");
      const auto factor = links_.OwnMakerOf(self == norm.result ? other : self, "aten::add");
      if (!factor || !IsSum(links_.node(*factor)) ||
          NumberAt(links_.node(*factor), "other") != 1.0 ||
          SlotOf(links_.node(*factor), "self") == kNoSlot) {
        return;
      }
      chain.nodes.insert({*factor, *mul});
      norm.scale = SlotOf(links_.node(*factor), "self");
      norm.result = PastCasts(product.outputs[0], chain);
    }
    const auto sum = links_.OnlyReaderOf(norm.result, "aten::add");
    if (!sum || !IsSum(links_.node(*sum)) || norm.scale == kNoSlot) return;
    const Slot self = SlotOf(links_.node(*sum), "self"), other = SlotOf(links_.node(*sum), "other");
    const Slot shift = self == norm.result ? other : self;
    if (shift == kNoSlot || shift == norm.result) return;
    chain.nodes.insert(*sum);
    norm.shift = shift;
    norm.result = PastCasts(links_.node(*sum).outputs[0], chain);
  }

  const Graph& graph_;
  const GraphLinks links_;
};

// Moves the nodes of each chain to where its last one was, and sets first and end.
void Arrange(std::vector<Chain>& chains, Graph& graph) {
  std::map<size_t, Chain*> by_node;
  for (Chain& chain : chains) {
    for (const size_t node : chain.nodes) by_node[node] = &chain;
  }
  std::vector<GraphNode> nodes;
  std::vector<size_t> before = {0};  // By node: how many stand before the next one.
  const auto move = [&](size_t i) { nodes.push_back(std::move(graph.nodes[i])); };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto found = by_node.find(i);
    if (found == by_node.end()) {
      move(i);
    } else if (i == *found->second->nodes.rbegin()) {
      found->second->fusion.first = nodes.size();
      for (const size_t node : found->second->nodes) move(node);
      found->second->fusion.end = nodes.size();
    }
    before.push_back(nodes.size());
  }
  for (GraphBlock& block : graph.blocks) {  // No chain leaves one.
    block.first = before[block.first];
    block.end = before[block.end];
  }
  graph.nodes = std::move(nodes);
}

}  // namespace

std::vector<Slot> InputsOf(const Fusion& fusion) {
  std::vector<Slot> inputs = {fusion.x, fusion.scale, fusion.shift, fusion.a, fusion.b};
  for (const HeadSlots& part : fusion.parts) {
    inputs.insert(inputs.end(), {part.x, part.weight, part.cos, part.sin});
  }
  std::erase(inputs, kNoSlot);
  return inputs;
}

std::vector<Fusion> FindFusions(Graph& graph) {
  std::vector<Chain> chains;
  {
    const ChainFinder finder(graph);
    std::set<size_t> taken;
    const auto take = [&](std::optional<Chain> chain) {
      if (!chain || !finder.Holds(*chain)) return;
      if (std::ranges::any_of(chain->nodes, [&](size_t i) { return taken.contains(i); })) return;
      taken.insert(chain->nodes.begin(), chain->nodes.end());
      chains.push_back(*std::move(chain));
    };
    for (Chain& chain : FindHeads(graph)) take(std::move(chain));
    for (size_t i = 0; i < graph.nodes.size(); ++i) take(finder.NormAt(i));
    for (size_t i = 0; i < graph.nodes.size(); ++i) take(finder.GateAt(i));
    for (size_t i = 0; i < graph.nodes.size(); ++i) take(finder.JoinAt(i));
  }
  Arrange(chains, graph);
  std::vector<Fusion> fusions;
  for (Chain& chain : chains) fusions.push_back(std::move(chain.fusion));
  std::ranges::sort(fusions, {}, &Fusion::first);
  return fusions;
}

}  // namespace oxbow::model::exported
