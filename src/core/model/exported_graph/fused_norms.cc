// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/fused_norms.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/model/exported_graph/graph_links.h"
#include "core/model/exported_graph/program.h"
#include "core/model/exported_graph/shared_nodes.h"

namespace oxbow::model::exported {
namespace {

// The nodes of one norm. All but the last two are read by the next alone.
struct Norm {
  size_t square = 0, mean = 0, shift = 0, root = 0, scale = 0, weigh = 0;
  Slot input = kNoSlot;
  Slot weight = kNoSlot;
  double eps = 0;
};

class NormFinder {
 public:
  explicit NormFinder(const Graph& graph) : graph_(graph), links_(graph) {
    for (const GraphParameter& parameter : graph.parameters) {
      if (parameter.shape.size() == 1) widths_[parameter.slot] = parameter.shape[0];
    }
  }

  std::optional<Norm> At(size_t root) const {
    Norm norm{.root = root};
    const auto shift = links_.OwnMakerOf(SlotOf(Node(root), "self"), "aten::add");
    if (!shift || !Root(root)) return std::nullopt;
    const auto mean = links_.OwnMakerOf(SlotOf(Node(*shift), "self"), "aten::mean");
    if (!mean || !IsMeanOfLastSize(Node(*mean))) return std::nullopt;
    const auto square = links_.OwnMakerOf(SlotOf(Node(*mean), "self"), "aten::pow");
    const std::optional<double> eps = NumberAt(Node(*shift), "other");
    if (!square || !eps || NumberAt(Node(*square), "exponent") != 2.0) return std::nullopt;
    if (const auto alpha = NumberAt(Node(*shift), "alpha"); alpha.value_or(1) != 1) {
      return std::nullopt;
    }
    norm = {.square = *square, .mean = *mean, .shift = *shift, .root = root};
    norm.input = SlotOf(Node(*square), "self");
    norm.eps = *eps;
    return Weighed(norm) && OneBlock(norm) && !WritesInPlace(norm) ? std::optional(norm)
                                                                   : std::nullopt;
  }

  int64_t WidthOf(Slot weight) const { return widths_.at(weight); }

 private:
  const GraphNode& Node(size_t i) const { return graph_.nodes[i]; }

  bool Root(size_t i) const { return Node(i).op == "aten::rsqrt" && Node(i).outputs.size() == 1; }

  // The only reader of a slot, a product with another value; that value is `other`.
  std::optional<size_t> ProductOf(Slot slot, Slot& other) const {
    const auto i = links_.OnlyReaderOf(slot, "aten::mul");
    if (!i) return std::nullopt;
    const Slot self = SlotOf(Node(*i), "self"), right = SlotOf(Node(*i), "other");
    other = self == slot ? right : self;
    return other == kNoSlot || other == slot ? std::nullopt : i;
  }

  bool Weighed(Norm& norm) const {
    Slot input = kNoSlot;
    const auto scale = ProductOf(Node(norm.root).outputs[0], input);
    if (!scale || input != norm.input) return false;
    const auto weigh = ProductOf(Node(*scale).outputs[0], norm.weight);
    if (!weigh || !widths_.contains(norm.weight)) return false;
    norm.scale = *scale;
    norm.weigh = *weigh;
    return true;
  }

  bool OneBlock(const Norm& norm) const {
    return std::all_of(graph_.blocks.begin(), graph_.blocks.end(), [&](const GraphBlock& block) {
      const auto inside = [&](size_t i) { return i >= block.first && i < block.end; };
      return inside(norm.square) == inside(norm.weigh);
    });
  }

  bool WritesInPlace(const Norm& norm) const {
    return std::any_of(graph_.nodes.begin() + static_cast<ptrdiff_t>(norm.square),
                       graph_.nodes.begin() + static_cast<ptrdiff_t>(norm.weigh),
                       [](const GraphNode& node) { return node.op.ends_with('_'); });
  }

  const Graph& graph_;
  const GraphLinks links_;
  std::map<Slot, int64_t> widths_;  // The sizes of weights.
};

GraphNode NodeOf(const Norm& norm, const NormFinder& finder, GraphNode last) {
  last.op = "aten::rms_norm";
  last.overload.clear();
  last.arguments = {{"input", {SlotRef{norm.input}}},
                    {"normalized_shape", {Value::List{{finder.WidthOf(norm.weight)}}}},
                    {"weight", {SlotRef{norm.weight}}},
                    {"eps", {norm.eps}}};
  return last;
}

}  // namespace

Graph FuseRmsNorms(Graph graph) {
  const NormFinder finder(graph);
  std::vector<bool> gone(graph.nodes.size());
  std::vector<std::pair<size_t, GraphNode>> made;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != "aten::rsqrt") continue;
    const std::optional<Norm> norm = finder.At(i);
    if (!norm) continue;
    for (const size_t node : {norm->square, norm->mean, norm->shift, norm->root, norm->scale}) {
      gone[node] = true;
    }
    made.emplace_back(norm->weigh, NodeOf(*norm, finder, graph.nodes[norm->weigh]));
  }
  for (auto& [node, norm] : made) graph.nodes[node] = std::move(norm);
  return WithoutNodes(std::move(graph), gone);
}

}  // namespace oxbow::model::exported
