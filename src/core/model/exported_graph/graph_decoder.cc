// SPDX-License-Identifier: Apache-2.0
// The sections of a graph file that make the graph an autoencoder's decoder.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/exported_graph/graph_sections.h"

namespace oxbow::model::exported {
namespace {

constexpr int64_t kFactorMax = 1 << 12;

// B, then the channels, a number, then F of a video or its one frame, H and W.
absl::Status CheckLatents(const Field& decoder, const Graph& graph) {
  if (graph.inputs.size() != 1 || (graph.outputs.size() != 1 && !graph.next)) {
    return decoder.Error("its graph has more than one input or output");
  }
  const std::vector<Dimension>& shape = graph.inputs[0].shape;
  std::vector<std::string> symbols = {"B", "", "F", "H", "W"};
  if (shape.size() == 4) symbols.erase(symbols.begin() + 2);
  if (graph.next) symbols[2].clear();
  bool fits = shape.size() == symbols.size() && graph.inputs[0].type == at::kFloat;
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    fits = shape[d].symbol == symbols[d] && shape[d].times == 1;
  }
  if (!fits) return decoder.Error("its input is not [B, C, H, W] or [B, C, F, H, W] in float32");
  if (graph.next && (shape.size() != 5 || shape[2].size != 1)) {
    return decoder.Error("its input is not the latents of one frame, [B, C, 1, H, W]");
  }
  for (const auto& [name, range] : graph.symbols) {
    if (range.min > 1 || range.multiple != 1 || (range.max != 0 && name != "F")) {
      return decoder.Error("its graph does not take every size of " + name);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadTile(const Field& tile, const Graph& graph, GraphDecoder& read) {
  OXBOW_RETURN_IF_ERROR(tile.ExpectObject({"frames", "stride"}));
  OXBOW_ASSIGN_OR_RETURN(const Field frames, tile.At("frames"));
  OXBOW_ASSIGN_OR_RETURN(read.tile_frames, frames.Integer(1, kFactorMax));
  OXBOW_ASSIGN_OR_RETURN(const Field stride, tile.At("stride"));
  OXBOW_ASSIGN_OR_RETURN(read.tile_stride, stride.Integer(1, read.tile_frames));
  const auto taken = graph.symbols.find("F");
  if (taken == graph.symbols.end()) return tile.Error("of pictures");
  if (taken->second.max != 0 && taken->second.max <= read.tile_frames) {
    return tile.Error(absl::StrCat("the graph takes fewer than ", read.tile_frames + 1, " frames"));
  }
  return absl::OkStatus();
}

// Both graphs end with the states that the next one begins with, in one order.
absl::Status CheckStates(const Field& field, const Graph& first, const Graph& next) {
  const auto latents = [](const Graph& graph) {
    return graph.inputs.empty() ? GraphInput{} : graph.inputs[0];
  };
  if (first.inputs.size() != 1 || latents(next).name != latents(first).name ||
      latents(next).shape != latents(first).shape) {
    return field.Error("its first input is not that of the first frame: " + latents(next).name);
  }
  for (const GraphInput& input : next.inputs) {
    if (input.type != at::kFloat) return field.Error("not float32: " + input.name);
  }
  for (const Graph* graph : {&first, &next}) {
    const std::string of = graph == &first ? "the first frame" : "later frames";
    for (size_t i = 1; i < std::max(next.inputs.size(), graph->outputs.size()); ++i) {
      if (i >= graph->outputs.size()) {
        return field.Error(
            absl::StrCat("the graph of ", of, " does not give the state ", next.inputs[i].name));
      }
      const std::string& name = graph->outputs[i].name;
      if (i >= next.inputs.size() || next.inputs[i].name != name) {
        return field.Error(absl::StrCat("no input takes the state ", name, " of ", of));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadNextGraph(const Field& root, Graph& graph) {
  const std::optional<Field> field = root.Find("next");
  if (!field) return absl::OkStatus();
  if (graph.velocity) return field->Error("of a transformer's graph");
  if (!root.Find("decoder")) return field->Error("not an autoencoder's graph");
  OXBOW_RETURN_IF_ERROR(field->ExpectObject({"inputs", "outputs", "blocks", "nodes"}));
  auto next = std::make_shared<Graph>(graph);
  next->inputs.clear();
  next->outputs.clear();
  next->nodes.clear();
  next->blocks.clear();
  OXBOW_RETURN_IF_ERROR(ReadInputs(*field, *next));
  OXBOW_RETURN_IF_ERROR(ReadOutputs(*field, *next));
  OXBOW_RETURN_IF_ERROR(ReadNodes(*field, *next));
  OXBOW_RETURN_IF_ERROR(ReadBlocks(*field, *next));
  OXBOW_RETURN_IF_ERROR(CheckStates(*field, graph, *next));
  next->decoder.emplace();
  graph.next = std::move(next);
  return absl::OkStatus();
}

absl::Status ReadDecoderSection(const Field& root, Graph& graph) {
  const std::optional<Field> decoder = root.Find("decoder");
  if (!decoder) return absl::OkStatus();
  if (graph.velocity) return decoder->Error("of a transformer's graph");
  OXBOW_RETURN_IF_ERROR(decoder->ExpectObject({"time", "space", "tile"}));
  OXBOW_RETURN_IF_ERROR(CheckLatents(*decoder, graph));
  GraphDecoder read;
  OXBOW_ASSIGN_OR_RETURN(const Field time, decoder->At("time"));
  OXBOW_ASSIGN_OR_RETURN(read.time, time.Integer(1, kFactorMax));
  OXBOW_ASSIGN_OR_RETURN(const Field space, decoder->At("space"));
  OXBOW_ASSIGN_OR_RETURN(read.space, space.Integer(1, kFactorMax));
  const auto frames = graph.symbols.find("F");
  if (graph.inputs[0].shape.size() == 4 && read.time != 1) return time.Error("of pictures");
  if (const auto tile = decoder->Find("tile")) {
    OXBOW_RETURN_IF_ERROR(ReadTile(*tile, graph, read));
  } else if (frames != graph.symbols.end() && frames->second.max != 0) {
    return decoder->Error("its graph takes few frames, and does not say how a video is cut");
  }
  graph.decoder = read;
  return absl::OkStatus();
}

}  // namespace oxbow::model::exported
