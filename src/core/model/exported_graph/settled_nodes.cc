// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/settled_nodes.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "core/model/exported_graph/exported_transformer.h"
#include "core/model/exported_graph/interpreter.h"
#include "core/model/exported_graph/program.h"

namespace oxbow::model::exported {
namespace {

// Whether a call changes an argument: "add_", but not "__and__".
bool WritesInPlace(const GraphNode& node) {
  return node.op.ends_with('_') && !node.op.ends_with("__");
}

// Whether an argument is the number 1.
bool IsOne(const GraphNode& node, const std::string& argument) {
  return std::ranges::any_of(node.arguments, [&](const auto& named) {
    const auto* whole = std::get_if<int64_t>(&named.second.is);
    const auto* real = std::get_if<double>(&named.second.is);
    return named.first == argument && ((whole && *whole == 1) || (real && *real == 1));
  });
}

// Values that nodes make without an input, and the part of them that weights went into.
struct KnownSlots {
  std::set<Slot> known;
  std::set<Slot> of_weights;
};

KnownSlots Given(const Graph& graph) {
  KnownSlots slots;
  for (const GraphConstant& constant : graph.constants) slots.known.insert(constant.slot);
  for (const GraphParameter& parameter : graph.parameters) {
    if (parameter.slot == kNoSlot || parameter.linear) continue;
    slots.known.insert(parameter.slot);
    slots.of_weights.insert(parameter.slot);
  }
  return slots;
}

// Nodes that can run before there is an input, and those of them that need never run again.
struct Division {
  std::vector<GraphNode> early;
  std::vector<GraphNode> late;
  std::vector<GraphOutput> between;  // Values of settled nodes that late ones read.
};

Division Divide(Graph& graph) {
  Division division;
  KnownSlots slots = Given(graph);
  std::set<Slot> settled;
  for (GraphNode& node : graph.nodes) {
    const std::vector<Slot> reads = ReadsOf(node);
    const auto in = [&](const std::set<Slot>& set) {
      return [&set](Slot slot) { return set.contains(slot); };
    };
    const bool known = !reads.empty() && !WritesInPlace(node) &&
                       std::all_of(reads.begin(), reads.end(), in(slots.known));
    const bool made = reads.empty() && node.op != "aten::linear" && !WritesInPlace(node);
    // A whole number is no constant of a graph, so its node runs again.
    const bool of_weights = known && !node.op.starts_with("sym::") &&
                            std::any_of(reads.begin(), reads.end(), in(slots.of_weights));
    for (const Slot slot : node.outputs) {
      if (slot == kNoSlot) continue;
      if (known || made) slots.known.insert(slot);
      if (of_weights) {
        slots.of_weights.insert(slot);
        settled.insert(slot);
      }
    }
    if (known || made) division.early.push_back(node);
    if (!of_weights) division.late.push_back(std::move(node));
  }
  std::set<Slot> read;
  for (const GraphNode& node : division.late) {
    for (const Slot slot : ReadsOf(node)) read.insert(slot);
  }
  for (const GraphOutput& output : graph.outputs) read.insert(output.slot);
  for (const Slot slot : read) {
    if (settled.contains(slot)) division.between.push_back({.name = "", .slot = slot});
  }
  return division;
}

absl::StatusOr<std::vector<at::Tensor>> RunEarly(Graph early, const NamedTensors& weights) {
  OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<const Program> program, Compile(std::move(early)));
  const at::NoGradGuard no_gradients;
  try {
    return Interpreter(program, weights, PlainLinears(program->graph, weights), at::kCPU, {})
        .Run({});
  } catch (const c10::Error& error) {
    return absl::InvalidArgumentError(error.what_without_backtrace());
  }
}

void DropUnread(Graph& graph, NamedTensors& weights) {
  std::set<Slot> read;
  for (const GraphNode& node : graph.nodes) {
    for (const Slot slot : ReadsOf(node)) read.insert(slot);
  }
  for (const GraphOutput& output : graph.outputs) read.insert(output.slot);
  std::erase_if(graph.parameters, [&](const GraphParameter& parameter) {
    const bool unread = parameter.slot == kNoSlot || !read.contains(parameter.slot);
    if (unread) weights.erase(parameter.name);
    return unread;
  });
}

}  // namespace

absl::StatusOr<Graph> SettleNodes(Graph graph, NamedTensors& weights) {
  Division division = Divide(graph);
  Graph early = graph;
  early.nodes = std::move(division.early);
  graph.nodes = std::move(division.late);
  // They say what to compute again in a backward pass.
  early.blocks.clear();
  graph.blocks.clear();
  early.inputs.clear();
  early.outputs = std::move(division.between);
  OXBOW_ASSIGN_OR_RETURN(std::vector<at::Tensor> values, RunEarly(early, weights));
  for (size_t i = 0; i < values.size(); ++i) {
    graph.constants.push_back({.slot = early.outputs[i].slot, .tensor = std::move(values[i])});
  }
  DropUnread(graph, weights);
  return graph;
}

Graph WithOutputs(Graph graph, size_t count) {
  graph.outputs.resize(count);
  graph.blocks.clear();
  std::set<Slot> read;
  for (const GraphOutput& output : graph.outputs) read.insert(output.slot);
  std::vector<GraphNode> kept;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool needed =
        std::ranges::any_of(node->outputs, [&](Slot s) { return read.contains(s); });
    if (!needed && !WritesInPlace(*node)) continue;
    for (const Slot slot : ReadsOf(*node)) read.insert(slot);
    kept.push_back(std::move(*node));
  }
  graph.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  return graph;
}

Graph OverwriteDeadInputs(Graph graph) {
  const std::set<std::string> layers = {"aten::conv2d", "aten::conv_transpose2d", "aten::linear",
                                        "aten::group_norm"};
  const std::set<std::string> sums = {"aten::add", "aten::mul"};
  std::map<Slot, int> reads = ReadCounts(graph);
  std::set<Slot> own, real;  // Results that are no views; results of layers and sums with them.
  for (GraphNode& node : graph.nodes) {
    const std::vector<Slot> read = ReadsOf(node);
    const bool layer = layers.contains(node.op), sum = sums.contains(node.op);
    const auto is_real = [&](Slot slot) { return real.contains(slot); };
    if (layer || sum) own.insert(node.outputs[0]);
    if (layer || (sum && std::ranges::any_of(read, is_real))) real.insert(node.outputs[0]);
    if (node.op == "aten::div" && read.size() == 1 && is_real(read[0]) && IsOne(node, "other")) {
      node.op = "aten::detach";
      node.overload.clear();
      std::erase_if(node.arguments, [](const auto& named) { return named.first != "self"; });
      real.insert(node.outputs[0]);
    } else if ((node.op == "aten::relu" || node.op == "aten::silu") && read.size() == 1 &&
               reads[read[0]] == 1 && own.contains(read[0])) {
      node.op += "_";
    }
  }
  return graph;
}

}  // namespace oxbow::model::exported
