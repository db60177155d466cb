// SPDX-License-Identifier: Apache-2.0
// The section of a graph file that makes the graph an autoencoder's decoder.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/exported_graph/graph_sections.h"

namespace oxbow::model::exported {
namespace {

constexpr int64_t kFactorMax = 1 << 12;

// B, then the channels, a number, then F of a video, H and W.
absl::Status CheckLatents(const Field& decoder, const Graph& graph) {
  if (graph.inputs.size() != 1 || graph.outputs.size() != 1) {
    return decoder.Error("its graph has more than one input or output");
  }
  const std::vector<Dimension>& shape = graph.inputs[0].shape;
  const bool video = shape.size() == 5;
  const std::vector<std::string> symbols = video ? std::vector<std::string>{"B", "", "F", "H", "W"}
                                                 : std::vector<std::string>{"B", "", "H", "W"};
  bool fits = shape.size() == symbols.size() && graph.inputs[0].type == at::kFloat;
  for (size_t d = 0; fits && d < shape.size(); ++d) fits = shape[d].symbol == symbols[d];
  if (!fits) return decoder.Error("its input is not [B, C, H, W] or [B, C, F, H, W] in float32");
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

}  // namespace

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
  if (frames == graph.symbols.end() && read.time != 1) return time.Error("of pictures");
  if (const auto tile = decoder->Find("tile")) {
    OXBOW_RETURN_IF_ERROR(ReadTile(*tile, graph, read));
  } else if (frames != graph.symbols.end() && frames->second.max != 0) {
    return decoder->Error("its graph takes few frames, and does not say how a video is cut");
  }
  graph.decoder = read;
  return absl::OkStatus();
}

}  // namespace oxbow::model::exported
