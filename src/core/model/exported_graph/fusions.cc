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

constexpr size_t kPairsMax = 2;  // Factors and shifts of one norm.

// Whether a GELU is the one with tanh.
bool IsTanh(const GraphNode& gelu) {
  const Value* approximate = ArgumentOf(gelu, "approximate");
  const auto* name = approximate == nullptr ? nullptr : std::get_if<std::string>(&approximate->is);
  return name != nullptr && *name == "tanh";
}

// Follows chains. Numbers that an operator has by default must not be given otherwise.
class ChainFinder {
 public:
  explicit ChainFinder(const Graph& graph) : graph_(graph), links_(graph) {}

  std::optional<Chain> NormAt(size_t i) const {
    const GraphNode& node = links_.node(i);
    Chain chain{.fusion = {.kind = FusionKind::kNorm}, .nodes = {i}};
    Fusion& norm = chain.fusion;
    Slot normal = node.op == "aten::rsqrt" ? SpelledRms(i, chain) : kNoSlot;
    if (node.op == "aten::layer_norm" || node.op == "aten::rms_norm") {
      const std::optional<double> eps = NumberAt(node, "eps");
      if (!eps) return std::nullopt;
      norm.rms = node.op == "aten::rms_norm";
      norm.eps = *eps;
      norm.x = SlotOf(node, "input");
      if (norm.rms) norm.x = BeforeCasts(norm.x, chain);
      normal = node.outputs[0];
    }
    if (normal == kNoSlot) return std::nullopt;
    const Slot weight = SlotOf(node, "weight"), bias = SlotOf(node, "bias");
    normal = PastCasts(normal, chain);
    if (!norm.rms && (weight != kNoSlot || bias != kNoSlot)) {
      norm.base = weight == kNoSlot ? 1 : 0;
      norm.by = {{.scale = weight, .shift = bias, .result = normal}};
    } else {
      norm.weight = weight;
      Modulate(normal, chain);
    }
    if (chain.nodes.size() == 1 && norm.rms) return std::nullopt;  // One kernel as it is.
    norm.result = norm.by[0].result;
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
    return Chain{.fusion = {.kind = FusionKind::kJoin,
                            .result = cat.outputs[0],
                            .x = first->slot,
                            .a = SlotOf(links_.node(*gelu), "self"),
                            .tanh = IsTanh(links_.node(*gelu))},
                 .nodes = {*gelu, i}};
  }

  std::optional<Chain> GeluAt(size_t i) const {
    const GraphNode& gelu = links_.node(i);
    if (gelu.op != "aten::gelu" || !IsTanh(gelu)) return std::nullopt;
    const auto linear = links_.OwnMakerOf(SlotOf(gelu, "self"), "aten::linear");
    if (!linear || SlotOf(links_.node(*linear), "bias") == kNoSlot) return std::nullopt;
    return Chain{.fusion = {.kind = FusionKind::kGelu,
                            .result = gelu.outputs[0],
                            .x = SlotOf(links_.node(*linear), "input"),
                            .weight = SlotOf(links_.node(*linear), "weight"),
                            .a = SlotOf(links_.node(*linear), "bias"),
                            .tanh = true},
                 .nodes = {*linear, i}};
  }

  // Whether its nodes may run together, at the place of the last.
  bool Holds(const Chain& chain) const {
    const size_t first = *chain.nodes.begin(), last = *chain.nodes.rbegin();
    for (const GraphBlock& block : graph_.blocks) {
      const auto inside = [&](size_t i) { return i >= block.first && i < block.end; };
      if (inside(first) != inside(last)) return false;
    }
    for (const Slot slot : ResultsOf(chain.fusion)) {  // They are made at that place.
      if (std::ranges::any_of(links_.ReadersOf(slot),
                              [&](size_t i) { return i < last && !chain.nodes.contains(i); })) {
        return false;
      }
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

  // x rsqrt(mean(x^2) + eps) around its root, without a weight.
  Slot SpelledRms(size_t root, Chain& chain) const {
    Fusion& norm = chain.fusion;
    const auto shift = links_.OwnMakerOf(SlotOf(links_.node(root), "self"), "aten::add");
    if (!shift || !IsSum(links_.node(*shift))) return kNoSlot;
    const auto mean = links_.OwnMakerOf(SlotOf(links_.node(*shift), "self"), "aten::mean");
    const std::optional<double> eps = NumberAt(links_.node(*shift), "other");
    if (!mean || !eps || !IsMeanOfLastSize(links_.node(*mean))) return kNoSlot;
    const auto square = links_.OwnMakerOf(SlotOf(links_.node(*mean), "self"), "aten::pow");
    const auto scale = links_.OnlyReaderOf(links_.node(root).outputs[0], "aten::mul");
    if (!square || !scale || NumberAt(links_.node(*square), "exponent") != 2.0) return kNoSlot;
    norm.x = SlotOf(links_.node(*square), "self");
    norm.eps = *eps;
    norm.rms = true;
    const Slot self = SlotOf(links_.node(*scale), "self"),
               by = SlotOf(links_.node(*scale), "other");
    if ((self != norm.x && by != norm.x) || self == by) return kNoSlot;
    chain.nodes.insert({*shift, *mean, *square, *scale});
    return links_.node(*scale).outputs[0];
  }

  // Factors 1 + scale and shifts behind a norm: none, one pair or two.
  void Modulate(Slot normal, Chain& chain) const {
    Fusion& norm = chain.fusion;
    const std::vector<size_t> readers = links_.ReadersOf(normal);
    if (readers.size() <= kPairsMax) {
      const std::set<size_t> before = chain.nodes;
      for (const size_t reader : readers) {
        const std::optional<NormSlots> pair = PairAt(reader, normal, chain);
        if (pair) norm.by.push_back(*pair);
      }
      if (!readers.empty() && norm.by.size() == readers.size()) return;
      chain.nodes = before;
    }
    norm.by = {{.result = normal}};
  }

  // The factor in a node's product with normal values, and the shift behind it.
  std::optional<NormSlots> PairAt(size_t reader, Slot normal, Chain& chain) const {
    if (reader == SIZE_MAX || links_.node(reader).op != "aten::mul") return std::nullopt;
    const Slot self = SlotOf(links_.node(reader), "self");
    Slot other = SlotOf(links_.node(reader), "other");
    if (self == other) return std::nullopt;
    if (other == normal) other = self;
    NormSlots pair;
    if (const auto wider = links_.OwnMakerOf(other, "aten::unsqueeze")) {
      if (NumberAt(links_.node(*wider), "dim") != 1.0) return std::nullopt;
      pair.of_samples = true;
      chain.nodes.insert(*wider);
      other = SlotOf(links_.node(*wider), "self");
    }
    const auto factor = links_.OwnMakerOf(other, "aten::add");
    if (!factor || !IsSum(links_.node(*factor)) || NumberAt(links_.node(*factor), "other") != 1.0) {
      return std::nullopt;
    }
    pair.scale = SlotOf(links_.node(*factor), "self");
    chain.nodes.insert({*factor, reader});
    pair.result = PastCasts(links_.node(reader).outputs[0], chain);
    const auto sum = links_.OnlyReaderOf(pair.result, "aten::add");
    if (!sum || !IsSum(links_.node(*sum))) return pair;
    const Slot left = SlotOf(links_.node(*sum), "self"), right = SlotOf(links_.node(*sum), "other");
    const Slot shift = left == pair.result ? right : left;
    if (shift == kNoSlot || shift == pair.result) return pair;
    chain.nodes.insert(*sum);
    pair.shift = shift;
    pair.result = PastCasts(links_.node(*sum).outputs[0], chain);
    return pair;
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
  std::vector<Slot> inputs = {fusion.x, fusion.weight, fusion.a, fusion.b};
  for (const NormSlots& pair : fusion.by) inputs.insert(inputs.end(), {pair.scale, pair.shift});
  for (const HeadSlots& part : fusion.parts) {
    inputs.insert(inputs.end(), {part.x, part.weight, part.cos, part.sin});
  }
  std::erase(inputs, kNoSlot);
  return inputs;
}

std::vector<Slot> ResultsOf(const Fusion& fusion) {
  std::vector<Slot> results;
  for (const NormSlots& pair : fusion.by) results.push_back(pair.result);
  if (results.empty()) results.push_back(fusion.result);
  return results;
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
    for (size_t i = 0; i < graph.nodes.size(); ++i) take(finder.GeluAt(i));
  }
  Arrange(chains, graph);
  std::vector<Fusion> fusions;
  for (Chain& chain : chains) fusions.push_back(std::move(chain.fusion));
  std::ranges::sort(fusions, {}, &Fusion::first);
  return fusions;
}

}  // namespace oxbow::model::exported
