// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/fused_heads.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "core/model/exported_graph/graph_links.h"
#include "core/model/exported_graph/program.h"

namespace oxbow::model::exported {
namespace {

std::vector<Slot> ListOf(const GraphNode& node, std::string_view argument) {
  const Value* value = ArgumentOf(node, argument);
  const auto* list = value == nullptr ? nullptr : std::get_if<Value::List>(&value->is);
  std::vector<Slot> slots;
  for (const Value& element : list == nullptr ? Value::List() : *list) {
    const auto* ref = std::get_if<SlotRef>(&element.is);
    slots.push_back(ref == nullptr ? kNoSlot : ref->slot);
  }
  return slots;
}

std::vector<int64_t> SizesOf(const GraphNode& node, std::string_view argument) {
  const Value* value = ArgumentOf(node, argument);
  const auto* list = value == nullptr ? nullptr : std::get_if<Value::List>(&value->is);
  std::vector<int64_t> sizes;
  for (const Value& element : list == nullptr ? Value::List() : *list) {
    const auto* whole = std::get_if<int64_t>(&element.is);
    if (whole == nullptr) return {};
    sizes.push_back(*whole);
  }
  return sizes;
}

// Follows one chain from its result to what it is made of.
class HeadFinder {
 public:
  // `transposed`: the result is [B, heads, T, d], else [B, T, heads, d].
  HeadFinder(const GraphLinks& links, Slot result, bool transposed) : links_(links) {
    chain_.fusion = {.kind = FusionKind::kHeads, .result = result, .transposed = transposed};
  }

  // nullopt if nothing of a value's making is a norm or a turn.
  std::optional<Chain> Find() {
    if (!Joined(chain_.fusion.result)) return std::nullopt;
    std::vector<HeadSlots>& parts = chain_.fusion.parts;
    if (std::ranges::none_of(
            parts, [](const HeadSlots& part) { return part.norm || part.cos != kNoSlot; })) {
      return std::nullopt;
    }
    for (const size_t i : chain_.nodes) {
      for (const Slot slot : links_.node(i).outputs) {
        if (slot != chain_.fusion.result && !links_.ReadWithin(slot, chain_.nodes)) {
          return std::nullopt;
        }
      }
    }
    chain_.fusion.x = parts[0].x;
    return std::move(chain_);
  }

 private:
  // Takes the node of this operator that makes a value into the chain.
  const GraphNode* Take(Slot slot, std::string_view op) {
    const std::optional<size_t> made = links_.MakerOf(slot, op);
    if (!made) return nullptr;
    chain_.nodes.insert(*made);
    return &links_.node(*made);
  }

  // The value before casts, which join `nodes`.
  Slot Uncast(Slot slot, std::set<size_t>& nodes) const {
    for (;;) {
      const auto to = links_.MakerOf(slot, "aten::to"), as = links_.MakerOf(slot, "aten::type_as");
      const auto cast = to ? to : as;
      if (!cast || !IsCastToFloat(links_.node(*cast))) return slot;
      nodes.insert(*cast);
      slot = SlotOf(links_.node(*cast), "self");
    }
  }
  Slot Uncast(Slot slot) { return Uncast(slot, chain_.nodes); }

  // Parts joined along tokens, turned before that or after, or one part.
  bool Joined(Slot slot) {
    slot = Uncast(slot);
    if (const GraphNode* cat = Join(slot)) {
      return std::ranges::all_of(ListOf(*cat, "tensors"), [&](Slot part) { return Part(part); });
    }
    return Part(slot);
  }

  bool Part(Slot slot) {
    HeadSlots part;
    slot = Uncast(slot);
    const Slot turned = Unturned(slot, part);
    if (turned == kNoSlot) return Normed(slot, part);
    const Slot inner = Uncast(turned);
    const GraphNode* cat = Join(inner);
    if (cat == nullptr) return Normed(inner, part);
    part.joint = true;
    return std::ranges::all_of(ListOf(*cat, "tensors"),
                               [&](Slot each) { return Normed(Uncast(each), part); });
  }

  const GraphNode* Join(Slot slot) {
    const auto cat = links_.MakerOf(slot, "aten::cat");
    const double tokens = chain_.fusion.transposed ? 2 : 1;
    if (!cat || NumberAt(links_.node(*cat), "dim") != tokens) return nullptr;
    return Take(slot, "aten::cat");
  }

  // Adds a part whose angles are known.
  bool Normed(Slot slot, HeadSlots part) {
    part.x = slot;
    if (chain_.fusion.transposed) return NormedTransposed(slot, part);
    const auto split = links_.MakerOf(slot, "aten::unflatten");
    const Slot before = split ? SlotOf(links_.node(*split), "self") : kNoSlot;
    if (links_.MakerOf(slot, "aten::rms_norm")) {
      Norm(slot, part);
    } else if (split && links_.MakerOf(before, "aten::rms_norm")) {
      part.split = SizesOf(links_.node(*split), "sizes");
      part.whole = true;
      if (part.split.size() != 2 || NumberAt(links_.node(*split), "dim") != 2.0) return false;
      chain_.nodes.insert(*split);
      Norm(before, part);
    }
    chain_.fusion.parts.push_back(part);
    return part.x != kNoSlot;
  }

  // Heads that came before tokens already when they were normalised. Such heads never turn here.
  bool NormedTransposed(Slot slot, HeadSlots part) {
    if (part.cos != kNoSlot || !links_.MakerOf(slot, "aten::rms_norm")) return false;
    Norm(slot, part);
    const GraphNode* moved = Take(part.x, "aten::transpose");
    if (moved == nullptr || NumberAt(*moved, "dim0") != 1.0 || NumberAt(*moved, "dim1") != 2.0) {
      return false;
    }
    part.x = SlotOf(*moved, "self");
    chain_.fusion.parts.push_back(part);
    return true;
  }

  void Norm(Slot slot, HeadSlots& part) {
    const GraphNode& norm = *Take(slot, "aten::rms_norm");
    part.norm = true;
    part.eps = NumberAt(norm, "eps").value_or(0);
    part.weight = SlotOf(norm, "weight");
    part.x = SlotOf(norm, "input");
    if (links_.OnlyReaderOf(part.x)) part.x = Uncast(part.x);
  }

  // The value that is turned, and its angles; kNoSlot if none is.
  Slot Unturned(Slot slot, HeadSlots& part) {
    const Slot complex = UnturnedComplex(slot, part);
    return complex == kNoSlot ? UnturnedReal(slot, part) : complex;
  }

  // flatten(view_as_real(view_as_complex(pairs of h) angles))
  Slot UnturnedComplex(Slot slot, HeadSlots& part) {
    const auto flat = links_.MakerOf(slot, "aten::flatten");
    if (!flat) return kNoSlot;
    const auto real = links_.MakerOf(SlotOf(links_.node(*flat), "self"), "aten::view_as_real");
    if (!real) return kNoSlot;
    const auto mul = links_.MakerOf(SlotOf(links_.node(*real), "self"), "aten::mul");
    if (!mul) return kNoSlot;
    for (const auto& [of, by] : {std::pair("self", "other"), std::pair("other", "self")}) {
      const auto complex = links_.MakerOf(SlotOf(links_.node(*mul), of), "aten::view_as_complex");
      if (!complex) continue;
      const Slot pairs = SlotOf(links_.node(*complex), "self");
      const Slot h = Unpaired(pairs);
      if (h == kNoSlot) continue;
      chain_.nodes.insert({*flat, *real, *mul, *complex});
      part.cos = SlotOf(links_.node(*mul), by);
      return h;
    }
    return kNoSlot;
  }

  // h cos + crossed sin, where crossed has -b, a in place of a, b.
  Slot UnturnedReal(Slot slot, HeadSlots& part) {
    const auto sum = links_.MakerOf(slot, "aten::add");
    if (!sum || !IsSum(links_.node(*sum))) return kNoSlot;
    const auto left = links_.MakerOf(SlotOf(links_.node(*sum), "self"), "aten::mul");
    const auto right = links_.MakerOf(SlotOf(links_.node(*sum), "other"), "aten::mul");
    if (!left || !right) return kNoSlot;
    const std::set<size_t> before = chain_.nodes;
    for (const auto& [straight, crossed] : {std::pair(*left, *right), std::pair(*right, *left)}) {
      for (const auto& [of, by] : {std::pair("self", "other"), std::pair("other", "self")}) {
        const Slot h = Uncrossed(SlotOf(links_.node(crossed), of));
        part.sin = SlotOf(links_.node(crossed), by);
        for (const auto& [same, cos] : {std::pair("self", "other"), std::pair("other", "self")}) {
          part.cos = SlotOf(links_.node(straight), cos);
          std::set<size_t> casts;
          const Slot source = SlotOf(links_.node(straight), same);
          if (h == kNoSlot || Uncast(source, casts) != Uncast(h, casts)) continue;
          chain_.nodes.merge(casts);
          chain_.nodes.insert({*sum, *left, *right});
          return h;
        }
        chain_.nodes = before;
      }
    }
    part.cos = part.sin = kNoSlot;
    return kNoSlot;
  }

  // h of flatten(stack([-b, a])), where a, b are the pairs of h.
  Slot Uncrossed(Slot slot) {
    const GraphNode* flat = Take(Uncast(slot), "aten::flatten");
    const GraphNode* stack = flat ? Take(SlotOf(*flat, "self"), "aten::stack") : nullptr;
    const std::vector<Slot> both = stack ? ListOf(*stack, "tensors") : std::vector<Slot>();
    if (both.size() != 2 || NumberAt(*stack, "dim") != -1.0) return kNoSlot;
    const GraphNode* neg = Take(both[0], "aten::neg");
    const GraphNode* unbind = Take(both[1], "aten::unbind");
    if (!neg || !unbind || unbind->outputs.size() != 2 || unbind->outputs[0] != both[1] ||
        unbind->outputs[1] != SlotOf(*neg, "self")) {
      return kNoSlot;
    }
    return Unpaired(SlotOf(*unbind, "self"));
  }

  // The value whose last size was made one of pairs.
  Slot Unpaired(Slot slot) {
    for (const std::string_view op : {"aten::reshape", "aten::unflatten", "aten::view"}) {
      if (const GraphNode* pairs = Take(slot, op)) return SlotOf(*pairs, "self");
    }
    return kNoSlot;
  }

  const GraphLinks& links_;
  Chain chain_;
};

}  // namespace

std::vector<Chain> FindHeads(const Graph& graph) {
  const GraphLinks links(graph);
  std::vector<Chain> chains;
  std::set<Slot> known;
  const auto take = [&](Slot slot, bool transposed = false) {
    auto chain = HeadFinder(links, slot, transposed).Find();
    if (chain && known.insert(slot).second) chains.push_back(*std::move(chain));
    return chain.has_value();
  };
  for (const GraphNode& node : graph.nodes) {
    if (node.op != "aten::scaled_dot_product_attention") continue;
    for (const std::string_view read : {"query", "key"}) {
      const Slot turned = SlotOf(node, read);
      auto moved = links.MakerOf(turned, "aten::permute");
      if (!moved) moved = links.MakerOf(turned, "aten::transpose");
      if (!moved) {
        take(turned, /*transposed=*/true);
        continue;
      }
      const Slot slot = SlotOf(links.node(*moved), "self");
      if (slot == kNoSlot || take(slot)) continue;
      // Whole tokens that were turned before they became heads.
      const auto split = links.MakerOf(slot, "aten::unflatten");
      if (split) take(SlotOf(links.node(*split), "self"));
    }
  }
  return chains;
}

}  // namespace oxbow::model::exported
