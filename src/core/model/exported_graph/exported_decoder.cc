// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/exported_decoder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/device_memory.h"
#include "core/model/exported_graph/dry_run.h"
#include "core/model/exported_graph/exported_transformer.h"
#include "core/model/exported_graph/graph_config.h"
#include "core/model/exported_graph/interpreter.h"
#include "core/model/exported_graph/settled_nodes.h"

namespace oxbow::model::exported {
namespace {

constexpr int64_t kFrameDimension = 2;  // The dimension of frames, of latents and of pixels.

// Pictures at a time. A CPU is not faster with several, and one by one their bits do not depend on
// the batch. A clip takes the memory of many pictures.
int64_t RowsAtOnce(bool video, bool on_cpu) { return video || on_cpu ? 1 : 8; }

// The first frames of `pixels` fade over from the last ones of `before`, in place.
void FadeOver(const at::Tensor& before, at::Tensor& pixels, int64_t frames) {
  frames = std::min({before.size(kFrameDimension), pixels.size(kFrameDimension), frames});
  if (frames == 0) return;
  const at::Tensor share = at::arange(frames, at::TensorOptions().dtype(at::kDouble))
                               .div(static_cast<double>(frames))
                               .view({1, 1, frames, 1, 1});
  const auto weight = [&](const at::Tensor& of) { return of.to(pixels.device(), at::kFloat); };
  const at::Tensor last =
      before.narrow(kFrameDimension, before.size(kFrameDimension) - frames, frames);
  at::Tensor first = pixels.narrow(kFrameDimension, 0, frames);
  first.copy_(last * weight(1 - share) + first * weight(share));
}

// The programs of one graph file; all read the same tensors.
struct Programs {
  // Takes all frames, or one that none follows.
  std::shared_ptr<const Program> whole;
  // For a clip that is decoded frame by frame; null: no clip is.
  std::shared_ptr<const Program> first, next;

  // The programs that run for so many latent frames.
  std::vector<std::shared_ptr<const Program>> Of(int64_t frames) const {
    if (next == nullptr || frames == 1) return {whole};
    return {first, next};
  }
};

class RunningDecoder final : public ExportedDecoder {
 public:
  RunningDecoder(const Programs& programs, const NamedTensors& weights, at::Device device)
      : facts_(*programs.whole->graph.decoder),
        video_(programs.whole->graph.inputs[0].shape.size() == 5),
        device_(device),
        rows_max_(RowsAtOnce(video_, device.is_cpu())),
        whole_(programs.whole, weights, PlainLinears(programs.whole->graph, weights), device, {}) {
    if (programs.next == nullptr) return;
    const auto linears = PlainLinears(programs.whole->graph, weights);
    first_.emplace(programs.first, weights, linears, device, Execution{});
    next_.emplace(programs.next, weights, linears, device, Execution{});
  }

  at::Tensor Pixels(const at::Tensor& latents) const override {
    return Joined(latents, kFrameDimension, [](const at::Tensor& piece) { return piece; });
  }

  at::Tensor Decode(const at::Tensor& latents) const override {
    return Joined(latents, 1, ToBytes);
  }

 private:
  using Change = std::function<at::Tensor(const at::Tensor&)>;
  using Take = std::function<void(const at::Tensor&)>;

  // The pixels of all rows, each piece changed when it is made; `time` is then the dimension of
  // frames.
  at::Tensor Joined(const at::Tensor& latents, int64_t time, const Change& change) const {
    const at::NoGradGuard no_gradients;
    const bool picture = video_ && latents.dim() == 4;
    const at::Tensor all = picture ? latents.unsqueeze(kFrameDimension) : latents;
    OXBOW_CHECK(all.dim() == (video_ ? 5 : 4) && all.size(0) > 0) << "latents " << latents.sizes();
    at::Tensor joined;
    const auto decode = [&](int64_t row, int64_t count) {
      int64_t done = 0;
      DecodeRows(all.narrow(0, row, count), [&](const at::Tensor& pixels) {
        const at::Tensor piece = change(pixels);
        if (!joined.defined()) joined = Room(piece, all, time);
        const at::Tensor rows = joined.narrow(0, row, count);
        (video_ ? rows.narrow(time, done, piece.size(time)) : rows).copy_(piece);
        done += video_ ? piece.size(time) : 0;
      });
      return at::empty({count, 0});
    };
    InPortions(all.size(0), rows_max_, "the image decoder", decode);
    return picture ? joined.squeeze(time) : joined;
  }

  // For the pixels of all rows, of which `piece` has some rows' first.
  at::Tensor Room(const at::Tensor& piece, const at::Tensor& latents, int64_t time) const {
    std::vector<int64_t> shape = piece.sizes().vec();
    shape[0] = latents.size(0);
    if (video_) {
      shape[static_cast<size_t>(time)] = 1 + (latents.size(kFrameDimension) - 1) * facts_.time;
    }
    return at::empty(shape, piece.options().device(latents.device()));
  }

  void DecodeRows(const at::Tensor& latents, const Take& take) const {
    if (next_.has_value() && latents.size(kFrameDimension) > 1) return DecodeClip(latents, take);
    if (facts_.tile_frames == 0) return take(whole_.Run({There(latents)})[0]);
    const int64_t frames = latents.size(kFrameDimension);
    at::Tensor before;
    for (int64_t first = 0; first < frames; first += facts_.tile_stride) {
      const int64_t count = std::min(frames - first, facts_.tile_frames + 1);
      if (first > 0 && count == 1) break;  // The tile before has made its frames.
      at::Tensor pixels = whole_.Run({There(latents.narrow(kFrameDimension, first, count))})[0];
      if (first > 0) {
        pixels = pixels.narrow(kFrameDimension, 1, pixels.size(kFrameDimension) - 1);
        FadeOver(before, pixels, (facts_.tile_frames - facts_.tile_stride) * facts_.time);
      }
      const int64_t made = facts_.tile_stride * facts_.time + (first == 0 ? 1 : 0);
      take(pixels.narrow(kFrameDimension, 0, std::min(made, pixels.size(kFrameDimension))));
      before = pixels;
    }
  }

  // Frame by frame. States are handed over, and given back as soon as they are read.
  void DecodeClip(const at::Tensor& latents, const Take& take) const {
    std::vector<at::Tensor> values(1);  // A frame's latents and states; then pixels and states.
    for (int64_t t = 0; t < latents.size(kFrameDimension); ++t) {
      values[0] = There(latents.narrow(kFrameDimension, t, 1));
      values = (t == 0 ? *first_ : *next_).Run(std::move(values));
      take(values[0]);
    }
  }

  at::Tensor There(const at::Tensor& latents) const {
    return latents.to(device_, at::kFloat).contiguous();
  }

  const GraphDecoder facts_;
  const bool video_;
  const at::Device device_;
  mutable std::atomic<int64_t> rows_max_;  // That the graph takes at a time.
  const Interpreter whole_;
  std::optional<Interpreter> first_, next_;
};

class ExportedDecoderArchitecture final : public DecoderArchitecture {
 public:
  // `shapes`: of the whole checkpoint.
  ExportedDecoderArchitecture(Programs programs, Shapes shapes, std::string graph_json)
      : programs_(std::move(programs)),
        shapes_(std::move(shapes)),
        of_decoder_(ShapesOf(graph())),
        graph_json_(std::move(graph_json)) {}

  const std::string& class_name() const override { return graph().class_name; }
  int64_t latent_channels() const override { return graph().inputs[0].shape[1].size; }
  LatentFactors factors() const override {
    return {.time = graph().decoder->time, .space = graph().decoder->space};
  }
  Shapes shapes() const override { return shapes_; }
  bool InDecoder(const std::string& tensor) const override { return of_decoder_.contains(tensor); }
  std::string graph_json() const override { return graph_json_; }
  // Beside what the graph holds: the pixels of the tile before, and those in bytes that are done.
  // A CPU's convolutions take memory inside themselves, which is not seen.
  uint64_t DecodingBytes(const std::vector<int64_t>& latent, int64_t rows,
                         bool on_cpu) const override {
    const GraphDecoder& facts = *graph().decoder;
    const bool video = latent.size() == 4;
    const int64_t at_once = std::min(rows, RowsAtOnce(video, on_cpu));
    const int64_t frames = video ? latent[1] : 1;
    const bool cut = facts.tile_frames > 0 && frames > facts.tile_frames + 1;
    const SymbolValues sizes = {{"B", at_once},
                                {"F", cut ? facts.tile_frames + 1 : frames},
                                {"H", latent[latent.size() - 2]},
                                {"W", latent.back()}};
    uint64_t most = 0;
    for (const auto& program : programs_.Of(frames)) {
      const auto peak = PeakBytes(program, sizes);
      if (!peak.ok()) return 0;
      most = std::max(most, *peak);
    }
    const auto shapes = OutputShapes(programs_.whole, sizes);
    if (!shapes.ok()) return 0;
    const auto pixels = static_cast<uint64_t>(c10::multiply_integers(shapes->at(0)));
    const auto rows_made = static_cast<uint64_t>(video ? 1 : rows);
    const uint64_t frames_made = static_cast<uint64_t>((frames - 1) * facts.time + 1);
    const int64_t frames_of_run = at_once * (video ? shapes->at(0)[kFrameDimension] : 1);
    return most + (cut ? pixels * sizeof(float) : 0) +
           rows_made * (pixels / static_cast<uint64_t>(frames_of_run)) * frames_made;
  }

  absl::StatusOr<std::unique_ptr<ImageDecoder>> Make(const NamedTensors& tensors) const override {
    OXBOW_RETURN_IF_ERROR(Annotate(CheckFit(of_decoder_, tensors), class_name()));
    const at::Device device = tensors.empty() ? at::kCPU : tensors.begin()->second.device();
    return std::make_unique<RunningDecoder>(programs_, tensors, device);
  }

 private:
  const Graph& graph() const { return programs_.whole->graph; }

  const Programs programs_;
  const Shapes shapes_;
  const Shapes of_decoder_;
  const std::string graph_json_;
};

absl::Status CheckShape(const std::string& what, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& expected) {
  if (shape == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("decoder: ", what, " are [",
                                                 absl::StrJoin(shape, ", "), "] instead of [",
                                                 absl::StrJoin(expected, ", "), "]"));
}

// Whether the pixels have the size that the graph says, and states that of the inputs they become.
absl::Status CheckFactors(const Programs& programs) {
  constexpr int64_t kFrames = 2, kHeight = 2, kWidth = 3;
  const SymbolValues sizes = {{"B", 1}, {"F", kFrames}, {"H", kHeight}, {"W", kWidth}};
  const GraphDecoder& facts = *programs.whole->graph.decoder;
  for (const auto& program : programs.Of(kFrames)) {
    const auto shapes = OutputShapes(program, sizes);
    if (!shapes.ok()) return absl::InvalidArgumentError(shapes.status().message());
    std::vector<int64_t> expected = {1, shapes->at(0).size() > 1 ? shapes->at(0)[1] : 0};
    if (program->graph.inputs[0].shape.size() == 5) {
      const int64_t whole = (kFrames - 1) * facts.time + 1;
      expected.push_back(!programs.next ? whole : program == programs.next ? facts.time : 1);
    }
    expected.insert(expected.end(), {kHeight * facts.space, kWidth * facts.space});
    OXBOW_RETURN_IF_ERROR(CheckShape("pixels", shapes->at(0), expected));
    for (size_t i = 1; i < shapes->size(); ++i) {
      const GraphInput& state = programs.next->graph.inputs[i];
      OXBOW_RETURN_IF_ERROR(
          CheckShape("values of state " + state.name, shapes->at(i), ShapeOf(state, sizes)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> DecoderFromGraph(
    const DecoderSource& source) {
  OXBOW_ASSIGN_OR_RETURN(Graph graph, ParseGraph(source.graph_json));
  if (graph.class_name != source.class_name) {
    return absl::InvalidArgumentError(
        absl::StrCat("class: ", graph.class_name, " instead of ", source.class_name));
  }
  if (!graph.decoder) {
    return absl::InvalidArgumentError("decoder: missing: not an autoencoder's graph");
  }
  OXBOW_RETURN_IF_ERROR(CheckConfig(graph, source.config_json));
  Shapes shapes = ShapesOf(graph);
  std::erase_if(graph.parameters,
                [](const GraphParameter& parameter) { return parameter.slot == kNoSlot; });
  Programs programs;
  if (graph.next) {
    Graph next = *std::exchange(graph.next, nullptr);
    next.parameters = graph.parameters;
    auto compiled = Compile(OverwriteDeadInputs(std::move(next)));
    if (!compiled.ok()) return Annotate(compiled.status(), "next");
    programs.next = *std::move(compiled);
    OXBOW_ASSIGN_OR_RETURN(programs.first, Compile(OverwriteDeadInputs(graph)));
    graph = WithOutputs(std::move(graph), 1);  // One frame has no use for states.
  }
  OXBOW_ASSIGN_OR_RETURN(programs.whole, Compile(OverwriteDeadInputs(std::move(graph))));
  OXBOW_RETURN_IF_ERROR(CheckFactors(programs));
  return std::make_shared<const ExportedDecoderArchitecture>(std::move(programs), std::move(shapes),
                                                             source.graph_json);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadExportedDecoder(
    const DecoderSource& source) {
  auto architecture = DecoderFromGraph(source);
  if (!architecture.ok()) return Annotate(architecture.status(), "graph");
  return architecture;
}

}  // namespace oxbow::model::exported
