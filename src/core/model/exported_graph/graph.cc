// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/graph.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/exported_graph/graph_sections.h"

namespace oxbow::model::exported {
namespace {

constexpr char kFormat[] = "oxbow-graph";
constexpr int64_t kVersion = 1;
constexpr int64_t kVersionOfStates = 2;  // Has a graph of next frames.
constexpr int kDepthMax = 16;

// The writer of each slot: there is no other, and nobody reads the slot before.
class SlotWriters {
 public:
  explicit SlotWriters(const Graph& graph) : graph_(graph), written_(graph.slots, false) {}

  absl::Status Write(Slot slot, const std::string& who) {
    if (slot == kNoSlot) return absl::OkStatus();
    if (written_[static_cast<size_t>(slot)]) {
      return absl::InvalidArgumentError(absl::StrCat(who, " writes a slot a second time: ", slot));
    }
    written_[static_cast<size_t>(slot)] = true;
    return absl::OkStatus();
  }

  absl::Status Read(Slot slot, const std::string& who) const {
    if (slot >= 0 && static_cast<size_t>(slot) < written_.size() &&
        written_[static_cast<size_t>(slot)]) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(who, " reads a slot that nothing wrote before: ", slot));
  }

  absl::Status ReadAll(const Value& value, const std::string& who) const {
    if (const auto* slot = std::get_if<SlotRef>(&value.is)) return Read(slot->slot, who);
    if (const auto* list = std::get_if<Value::List>(&value.is)) {
      for (const Value& element : *list) OXBOW_RETURN_IF_ERROR(ReadAll(element, who));
    }
    return absl::OkStatus();
  }

  absl::Status Node(size_t index) {
    const GraphNode& node = graph_.nodes[index];
    for (const auto& [name, value] : node.arguments) {
      OXBOW_RETURN_IF_ERROR(ReadAll(value, absl::StrCat("nodes[", index, "].args.", name)));
    }
    for (const Slot slot : node.outputs) {
      OXBOW_RETURN_IF_ERROR(Write(slot, absl::StrCat("nodes[", index, "].out")));
    }
    return absl::OkStatus();
  }

 private:
  const Graph& graph_;
  std::vector<bool> written_;
};

absl::Status CheckSlots(const Graph& graph) {
  SlotWriters writers(graph);
  for (const GraphInput& input : graph.inputs) {
    OXBOW_RETURN_IF_ERROR(writers.Write(input.slot, "input " + input.name));
  }
  for (const GraphParameter& parameter : graph.parameters) {
    OXBOW_RETURN_IF_ERROR(writers.Write(parameter.slot, "parameter " + parameter.name));
  }
  for (size_t i = 0; i < graph.constants.size(); ++i) {
    OXBOW_RETURN_IF_ERROR(
        writers.Write(graph.constants[i].slot, absl::StrCat("constants[", i, "]")));
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) OXBOW_RETURN_IF_ERROR(writers.Node(i));
  for (const GraphOutput& output : graph.outputs) {
    OXBOW_RETURN_IF_ERROR(writers.Read(output.slot, "output " + output.name));
  }
  return absl::OkStatus();
}

absl::Status ReadHeader(const Field& root, Graph& graph) {
  OXBOW_ASSIGN_OR_RETURN(const Field format, root.At("format"));
  if (format.json() != kFormat) return format.Error(absl::StrCat("not ", kFormat));
  OXBOW_ASSIGN_OR_RETURN(const Field version, root.At("version"));
  const int64_t expected = root.Find("next") ? kVersionOfStates : kVersion;
  if (version.json() != expected) {
    return version.Error(absl::StrCat(
        "only version ", kVersion, ", and ", kVersionOfStates,
        " of a graph with `next`, is known: ", version.json().dump().substr(0, Field::kTextMax)));
  }
  OXBOW_ASSIGN_OR_RETURN(const Field class_name, root.At("class"));
  OXBOW_ASSIGN_OR_RETURN(graph.class_name, class_name.Text());
  OXBOW_ASSIGN_OR_RETURN(const Field config, root.At("config"));
  OXBOW_ASSIGN_OR_RETURN(const Field defaults, root.At("defaults"));
  if (!config.json().is_object()) return config.Error("not an object");
  if (!defaults.json().is_object()) return defaults.Error("not an object");
  // Bytes that are not UTF-8 were refused by the parser.
  graph.config_json = config.json().dump();
  graph.defaults_json = defaults.json().dump();
  OXBOW_ASSIGN_OR_RETURN(const Field slots, root.At("slots"));
  OXBOW_ASSIGN_OR_RETURN(const int64_t count, slots.Integer(1, kSlotsMax));
  graph.slots = static_cast<size_t>(count);
  graph.velocity = root.Find("latent").has_value();
  return absl::OkStatus();
}

// The size that is used where none is asked for.
absl::Status ReadLatent(const Field& root, Graph& graph) {
  if (!graph.velocity) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(const Field latent, root.At("latent"));
  OXBOW_RETURN_IF_ERROR(latent.ExpectObject({"side", "frames", "guidance_norm"}));
  OXBOW_ASSIGN_OR_RETURN(const Field side, latent.At("side"));
  OXBOW_ASSIGN_OR_RETURN(graph.side, side.Integer(1, kSizeMax));
  if (const auto norm = latent.Find("guidance_norm")) {
    OXBOW_ASSIGN_OR_RETURN(graph.guidance_norm, norm->Bool());
  }
  const bool video = graph.inputs[0].shape.size() == 5;
  if (!video) {
    return latent.Find("frames") ? latent.Error("frames of an image") : absl::OkStatus();
  }
  OXBOW_ASSIGN_OR_RETURN(const Field frames, latent.At("frames"));
  OXBOW_ASSIGN_OR_RETURN(graph.frames, frames.Integer(1, kSizeMax));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Graph> ParseGraph(std::string_view json) {
  if (json.size() > kGraphBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a graph of more than ", kGraphBytesMax, " bytes: ", json.size()));
  }
  bool deep = false;
  const auto watch = [&deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    deep = deep || depth > kDepthMax;
    return !deep;
  };
  const auto document = nlohmann::json::parse(json, watch, /*allow_exceptions=*/false);
  if (deep || !document.is_object()) {
    return absl::InvalidArgumentError(deep ? "lists in lists without end" : "not a JSON object");
  }
  const Field root(document);
  Graph graph;
  OXBOW_RETURN_IF_ERROR(ReadHeader(root, graph));
  OXBOW_RETURN_IF_ERROR(ReadSymbols(root, graph));
  OXBOW_RETURN_IF_ERROR(ReadInputs(root, graph));
  OXBOW_RETURN_IF_ERROR(ReadOutputs(root, graph));
  OXBOW_RETURN_IF_ERROR(ReadParameters(root, graph));
  OXBOW_RETURN_IF_ERROR(ReadConstants(root, graph));
  OXBOW_RETURN_IF_ERROR(ReadNodes(root, graph));
  OXBOW_RETURN_IF_ERROR(ReadBlocks(root, graph));
  OXBOW_RETURN_IF_ERROR(ReadLatent(root, graph));
  OXBOW_RETURN_IF_ERROR(ReadNextGraph(root, graph));
  OXBOW_RETURN_IF_ERROR(ReadDecoderSection(root, graph));
  OXBOW_RETURN_IF_ERROR(CheckSlots(graph));
  if (graph.next) OXBOW_RETURN_IF_ERROR(Annotate(CheckSlots(*graph.next), "next"));
  return graph;
}

std::string NameOf(const Graph& graph, size_t node) {
  const GraphNode& named = graph.nodes[node];
  return absl::StrCat("nodes[", node, "] (", named.op, named.overload.empty() ? "" : ".",
                      named.overload, ")");
}

}  // namespace oxbow::model::exported
