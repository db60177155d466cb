// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/graph_links.h"

#include <algorithm>

#include "core/model/exported_graph/program.h"

namespace oxbow::model::exported {

const Value* ArgumentOf(const GraphNode& node, std::string_view name) {
  const auto found = std::find_if(node.arguments.begin(), node.arguments.end(),
                                  [&](const auto& argument) { return argument.first == name; });
  return found == node.arguments.end() ? nullptr : &found->second;
}

std::optional<double> NumberAt(const GraphNode& node, std::string_view name) {
  const Value* value = ArgumentOf(node, name);
  if (value == nullptr) return std::nullopt;
  if (const auto* whole = std::get_if<int64_t>(&value->is)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value->is)) return *real;
  return std::nullopt;
}

bool IsCastToFloat(const GraphNode& node) {
  if (node.op == "aten::type_as") return true;
  const Value* type = ArgumentOf(node, "dtype");
  const auto* given = type == nullptr ? nullptr : std::get_if<at::ScalarType>(&type->is);
  const Value* copy = ArgumentOf(node, "copy");
  const bool copies = copy != nullptr && copy->is.index() != 0 &&
                      (!std::holds_alternative<bool>(copy->is) || std::get<bool>(copy->is));
  return node.op == "aten::to" && given != nullptr && *given == at::kFloat && !copies;
}

bool IsSum(const GraphNode& node) {
  return node.op == "aten::add" && NumberAt(node, "alpha").value_or(1) == 1;
}

bool IsMeanOfLastSize(const GraphNode& mean) {
  const Value* dim = ArgumentOf(mean, "dim");
  const Value* keep = ArgumentOf(mean, "keepdim");
  const auto* list = dim == nullptr ? nullptr : std::get_if<Value::List>(&dim->is);
  const auto* kept = keep == nullptr ? nullptr : std::get_if<bool>(&keep->is);
  const auto* last =
      list == nullptr || list->size() != 1 ? nullptr : std::get_if<int64_t>(&list->front().is);
  const Value* type = ArgumentOf(mean, "dtype");
  return last != nullptr && *last == -1 && kept != nullptr && *kept &&
         (type == nullptr || std::holds_alternative<std::monostate>(type->is));
}

GraphLinks::GraphLinks(const Graph& graph) : graph_(graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Slot slot : graph.nodes[i].outputs) makers_[slot] = i;
    for (const Slot slot : ReadsOf(graph.nodes[i])) readers_[slot].push_back(i);
  }
  for (const GraphOutput& output : graph.outputs) readers_[output.slot].push_back(SIZE_MAX);
}

std::optional<size_t> GraphLinks::MakerOf(Slot slot, std::string_view op) const {
  const auto found = makers_.find(slot);
  if (slot == kNoSlot || found == makers_.end() || node(found->second).op != op) {
    return std::nullopt;
  }
  return found->second;
}

std::optional<size_t> GraphLinks::OwnMakerOf(Slot slot, std::string_view op) const {
  return OnlyReaderOf(slot) ? MakerOf(slot, op) : std::nullopt;
}

std::optional<size_t> GraphLinks::OnlyReaderOf(Slot slot) const {
  const auto found = readers_.find(slot);
  if (found == readers_.end() || found->second.size() != 1 || found->second[0] == SIZE_MAX) {
    return std::nullopt;
  }
  return found->second[0];
}

std::optional<size_t> GraphLinks::OnlyReaderOf(Slot slot, std::string_view op) const {
  const std::optional<size_t> reader = OnlyReaderOf(slot);
  return reader && node(*reader).op == op ? reader : std::nullopt;
}

std::vector<size_t> GraphLinks::ReadersOf(Slot slot) const {
  const auto found = readers_.find(slot);
  return found == readers_.end() ? std::vector<size_t>() : found->second;
}

bool GraphLinks::ReadWithin(Slot slot, const std::set<size_t>& nodes) const {
  return std::ranges::all_of(ReadersOf(slot), [&](size_t i) { return nodes.contains(i); });
}

}  // namespace oxbow::model::exported
