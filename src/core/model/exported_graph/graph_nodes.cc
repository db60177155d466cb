// SPDX-License-Identifier: Apache-2.0
// Nodes and blocks of a graph file.
#include <ATen/ATen.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/exported_graph/graph_sections.h"

namespace oxbow::model::exported {
namespace {

constexpr size_t kListMax = 1 << 12;
constexpr size_t kOutputsMax = 1 << 10;

absl::StatusOr<double> NotFiniteFrom(const Field& field) {
  if (field.json() == "inf") return std::numeric_limits<double>::infinity();
  if (field.json() == "-inf") return -std::numeric_limits<double>::infinity();
  if (field.json() == "nan") return std::numeric_limits<double>::quiet_NaN();
  return field.Error("neither inf, -inf nor nan");
}

absl::StatusOr<at::MemoryFormat> MemoryFormatFrom(const Field& field) {
  if (field.json() == "contiguous_format") return at::MemoryFormat::Contiguous;
  if (field.json() == "preserve_format") return at::MemoryFormat::Preserve;
  return field.Error("neither contiguous_format nor preserve_format");
}

// An object of one key says what a JSON value cannot.
absl::StatusOr<Value> TaggedFrom(const Field& field) {
  if (field.size() != 1) return field.Error("an argument's object does not have one key");
  const std::string& key = field.json().begin().key();
  OXBOW_ASSIGN_OR_RETURN(const Field tagged, field.At(key));
  Value value;
  if (key == "v") {
    OXBOW_ASSIGN_OR_RETURN(const int64_t slot, tagged.Integer(0, kSlotsMax));
    value.is = SlotRef{static_cast<Slot>(slot)};
  } else if (key == "dtype") {
    OXBOW_ASSIGN_OR_RETURN(value.is, ScalarTypeFrom(tagged));
  } else if (key == "device") {
    if (tagged.json() != true) return tagged.Error("a device other than the model's");
    value.is = ModelDevice{};
  } else if (key == "layout") {
    if (tagged.json() != "strided") return tagged.Error("a layout other than strided");
    value.is = at::kStrided;
  } else if (key == "memory_format") {
    OXBOW_ASSIGN_OR_RETURN(value.is, MemoryFormatFrom(tagged));
  } else if (key == "number") {
    OXBOW_ASSIGN_OR_RETURN(value.is, NotFiniteFrom(tagged));
  } else {
    return field.Error("unknown kind of argument: " + key.substr(0, Field::kTextMax));
  }
  return value;
}

absl::StatusOr<Value> ValueFrom(const Field& field, bool in_list) {
  const nlohmann::json& json = field.json();
  Value value;
  if (json.is_null()) return value;
  if (json.is_object()) return TaggedFrom(field);
  if (json.is_boolean()) {
    value.is = json.get<bool>();
  } else if (json.is_number_float()) {
    value.is = json.get<double>();
  } else if (json.is_number()) {
    constexpr auto kMax = std::numeric_limits<int64_t>::max();
    OXBOW_ASSIGN_OR_RETURN(value.is, field.Integer(-kMax, kMax));
  } else if (json.is_string()) {
    OXBOW_ASSIGN_OR_RETURN(value.is, field.Text());
  } else {
    if (in_list) return field.Error("a list in a list");
    OXBOW_RETURN_IF_ERROR(field.ExpectList(kListMax));
    Value::List list;
    for (size_t i = 0; i < field.size(); ++i) {
      OXBOW_ASSIGN_OR_RETURN(Value element, ValueFrom(field.Element(i), /*in_list=*/true));
      list.push_back(std::move(element));
    }
    value.is = std::move(list);
  }
  return value;
}

absl::StatusOr<Slot> OutputFrom(const Field& field, const Graph& graph) {
  if (field.json().is_null()) return kNoSlot;
  OXBOW_ASSIGN_OR_RETURN(const int64_t slot,
                         field.Integer(0, static_cast<int64_t>(graph.slots) - 1));
  return static_cast<Slot>(slot);
}

absl::StatusOr<GraphNode> NodeFrom(const Field& field, const Graph& graph) {
  OXBOW_RETURN_IF_ERROR(field.ExpectObject({"op", "overload", "args", "out", "autocast"}));
  GraphNode node;
  OXBOW_ASSIGN_OR_RETURN(const Field op, field.At("op"));
  OXBOW_ASSIGN_OR_RETURN(node.op, op.Text());
  if (const auto overload = field.Find("overload"); overload && overload->json() != "") {
    OXBOW_ASSIGN_OR_RETURN(node.overload, overload->Text());
  }
  if (const auto autocast = field.Find("autocast")) {
    OXBOW_ASSIGN_OR_RETURN(node.autocast, autocast->Bool());
  }
  OXBOW_ASSIGN_OR_RETURN(const Field arguments, field.At("args"));
  if (!arguments.json().is_object()) return arguments.Error("not an object");
  for (auto argument = arguments.json().begin(); argument != arguments.json().end(); ++argument) {
    OXBOW_ASSIGN_OR_RETURN(const Field named, arguments.At(argument.key()));
    OXBOW_ASSIGN_OR_RETURN(Value value, ValueFrom(named, /*in_list=*/false));
    node.arguments.emplace_back(argument.key(), std::move(value));
  }
  OXBOW_ASSIGN_OR_RETURN(const Field out, field.At("out"));
  node.list = out.json().is_array();
  if (!node.list) {
    OXBOW_ASSIGN_OR_RETURN(const Slot slot, OutputFrom(out, graph));
    node.outputs.push_back(slot);
    return node;
  }
  OXBOW_RETURN_IF_ERROR(out.ExpectList(kOutputsMax));
  for (size_t i = 0; i < out.size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(const Slot slot, OutputFrom(out.Element(i), graph));
    node.outputs.push_back(slot);
  }
  return node;
}

}  // namespace

absl::Status ReadNodes(const Field& root, Graph& graph) {
  OXBOW_ASSIGN_OR_RETURN(const Field nodes, root.At("nodes"));
  OXBOW_RETURN_IF_ERROR(nodes.ExpectList(kNodesMax));
  for (size_t i = 0; i < nodes.size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(GraphNode node, NodeFrom(nodes.Element(i), graph));
    graph.nodes.push_back(std::move(node));
  }
  return absl::OkStatus();
}

absl::Status ReadBlocks(const Field& root, Graph& graph) {
  OXBOW_ASSIGN_OR_RETURN(const Field blocks, root.At("blocks"));
  OXBOW_RETURN_IF_ERROR(blocks.ExpectList(graph.nodes.size()));
  size_t before = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Field field = blocks.Element(i);
    OXBOW_RETURN_IF_ERROR(field.ExpectObject({"name", "first", "end"}));
    GraphBlock block;
    const auto nodes = static_cast<int64_t>(graph.nodes.size());
    OXBOW_ASSIGN_OR_RETURN(const Field name, field.At("name"));
    OXBOW_ASSIGN_OR_RETURN(block.name, name.Text());
    OXBOW_ASSIGN_OR_RETURN(const Field first, field.At("first"));
    OXBOW_ASSIGN_OR_RETURN(const int64_t begin, first.Integer(0, nodes));
    OXBOW_ASSIGN_OR_RETURN(const Field end, field.At("end"));
    OXBOW_ASSIGN_OR_RETURN(const int64_t after, end.Integer(begin + 1, nodes));
    block.first = static_cast<size_t>(begin);
    block.end = static_cast<size_t>(after);
    if (block.first < before) return field.Error("begins before the block before it ends");
    before = block.end;
    graph.blocks.push_back(std::move(block));
  }
  return absl::OkStatus();
}

}  // namespace oxbow::model::exported
