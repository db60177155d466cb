// SPDX-License-Identifier: Apache-2.0
// Any diffusers transformer as an Architecture: what its exported graph says (docs/models.md).
#include <ATen/Context.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "core/model/architecture.h"
#include "core/model/exported_graph/dry_run.h"
#include "core/model/exported_graph/exported_transformer.h"
#include "core/model/exported_graph/graph_config.h"
#include "core/model/exported_graph/linear_groups.h"
#include "core/model/exported_graph/program.h"
#include "core/model/fused/fused_layers.h"
#include "core/model/layers.h"
#include "core/model/lora.h"
#include "core/model/velocity_model.h"

namespace oxbow::model::exported {
namespace {

constexpr int64_t kSideMax = 1 << 14;  // Where a graph sets no limit.
constexpr int64_t kProbeTokens = 11;   // The prompt's, in the dry run of a load.
constexpr int64_t kImagesOfLoss = 96;  // Bytes that a loss takes per element of x.

bool IsGuidance(const GraphInput& input) {
  return input.name == kEmbeddedGuidance && input.shape.size() == 1;
}

absl::StatusOr<LatentGeometry> GeometryOf(const Graph& graph) {
  const SymbolRange height = graph.symbols.at("H"), width = graph.symbols.at("W");
  if (graph.guidance_norm && height.multiple != width.multiple) {
    return absl::InvalidArgumentError(
        "latent.guidance_norm: tokens are not square: H and W are multiples of different sizes");
  }
  const auto limit = [](const SymbolRange& range) { return range.max == 0 ? kSideMax : range.max; };
  const auto frames = graph.symbols.find("F");
  const bool video = frames != graph.symbols.end();
  return LatentGeometry{.channels = graph.inputs[0].shape[1].size,
                        .frames = graph.frames,
                        .side = graph.side,
                        .patch = {.frames = video ? frames->second.multiple : 1,
                                  .height = height.multiple,
                                  .width = width.multiple},
                        .side_max = std::min(limit(height), limit(width)),
                        .frames_max = video ? frames->second.max : 0};
}

absl::StatusOr<std::vector<ConditioningPart>> ConditioningOf(const Graph& graph) {
  std::vector<ConditioningPart> parts;
  for (size_t i = 2; i < graph.inputs.size(); ++i) {
    const GraphInput& input = graph.inputs[i];
    if (IsGuidance(input)) continue;
    ConditioningPart part{.name = input.name};
    if (input.name.ends_with("mask")) part.values = ConditioningPart::Values::kMask;
    for (size_t d = 1; d < input.shape.size(); ++d) {
      const Dimension& dimension = input.shape[d];
      if (!dimension.symbol.empty() && dimension.symbol != "S") {
        return absl::InvalidArgumentError(absl::StrCat(
            "inputs[", i, "].shape: a size other than the prompt's, S: ", dimension.symbol));
      }
      part.shape.push_back(dimension.symbol.empty() ? dimension.size : kPromptLength);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// The nearest size that a symbol may have.
int64_t Allowed(const Graph& graph, const std::string& symbol, int64_t size) {
  const auto found = graph.symbols.find(symbol);
  if (found == graph.symbols.end()) return size;
  const SymbolRange& range = found->second;
  if (range.max != 0) size = std::min(size, range.max);
  size = std::max(size / range.multiple, int64_t{1}) * range.multiple;
  while (size < range.min) size += range.multiple;
  return size;
}

// Sizes that differ where they may, so that nothing fits by chance.
SymbolValues ProbeSizes(const Graph& graph, const LatentGeometry& latent) {
  SymbolValues sizes = {{"B", 3},
                        {"H", latent.side},
                        {"W", latent.side - latent.patch.width},
                        {"F", latent.frames},
                        {"S", kProbeTokens}};
  for (auto& [symbol, size] : sizes) size = Allowed(graph, symbol, size);
  return sizes;
}

// Answers of runs without values, which take a second each where a network is large. Who looks for
// the memory that a run takes asks for the same sizes again and again.
template <typename Question, typename Answer>
class KnownAnswers {
 public:
  Answer Get(const Question& question, const std::function<Answer()>& ask) {
    const absl::MutexLock lock(&mutex_);
    auto known = answers_.find(question);
    if (known == answers_.end()) known = answers_.emplace(question, ask()).first;
    return known->second;
  }

 private:
  absl::Mutex mutex_;
  std::map<Question, Answer> answers_ ABSL_GUARDED_BY(mutex_);
};

class ExportedArchitecture final : public Architecture {
 public:
  ExportedArchitecture(std::shared_ptr<const Program> program, const LatentGeometry& latent,
                       std::vector<ConditioningPart> conditioning, std::string graph_json)
      : program_(std::move(program)),
        latent_(latent),
        conditioning_(std::move(conditioning)),
        graph_json_(std::move(graph_json)) {
    for (const GraphParameter& parameter : program_->graph.parameters) {
      if (parameter.buffer) buffers_.insert(parameter.name);
      if (parameter.buffer || parameter.float32) float32_.insert(parameter.name);
    }
    for (const GraphInput& input : program_->graph.inputs) {
      if (!IsGuidance(input)) continue;
      takes_guidance_ = true;
      default_guidance_ = input.scale;
    }
  }

  const std::string& class_name() const override { return program_->graph.class_name; }
  const LatentGeometry& latent() const override { return latent_; }
  const std::vector<ConditioningPart>& conditioning() const override { return conditioning_; }
  bool takes_embedded_guidance() const override { return takes_guidance_; }
  double default_guidance() const override { return default_guidance_; }
  int64_t guidance_norm_patch() const override {
    return program_->graph.guidance_norm ? latent_.patch.height : 0;
  }
  std::string graph_json() const override { return graph_json_; }
  Shapes shapes() const override { return ShapesOf(program_->graph); }
  LinearModules linears() const override { return LinearsOf(program_->graph); }
  const std::set<std::string>& buffers() const override { return buffers_; }
  const std::set<std::string>& float32() const override { return float32_; }

  std::vector<std::vector<std::string>> side_by_side() const override {
    std::vector<std::vector<std::string>> groups;
    std::set<std::string> known;  // A layer may be in several groups.
    for (const std::vector<size_t>& nodes : program_->together) {
      std::vector<std::string> weights, biases;
      bool fresh = true;
      for (const size_t node : nodes) {
        const std::string& module = program_->linears.at(node).module;
        fresh = known.insert(module).second && fresh;
        weights.push_back(module + ".weight");
        if (HasBias(program_->graph.nodes[node])) biases.push_back(module + ".bias");
      }
      if (fresh) groups.push_back(std::move(weights));
      if (fresh && !biases.empty()) groups.push_back(std::move(biases));
    }
    return groups;
  }

  // Counted in float32. In bfloat16 twelve networks kept .54 to .98 of it, of which 7/8 is within
  // the error of the rest; with adapters and fused kernels eleven kept .71 to 1.03 and one 1.3. A
  // CPU's own passes and casts keep up to 3/8 more.
  uint64_t ActivationBytes(const Execution& execution, const ForwardSize& size) const override {
    const SymbolValues sizes = SizesOf(size);
    std::vector<std::string> adapted;
    if (!size.adapters.empty()) {
      adapted = MatchLoraTargets(linears(), size.adapters).value_or(std::vector<std::string>());
    }
    const auto kept = kept_.Get({sizes, adapted}, [&] { return DryRun(program_, sizes, adapted); });
    if (!kept.ok()) return 0;
    uint64_t loss = kImagesOfLoss * static_cast<uint64_t>(sizes.at("B"));
    for (const int64_t side : size.latent_shape) loss *= static_cast<uint64_t>(side);
    const uint64_t between =
        execution.inputs_on_host ? kept->between * InputsAtOnce() / Blocks() : kept->between;
    const uint64_t values =
        kept->outside +
        (execution.checkpoint_activations ? between + kept->largest_block : kept->blocks);
    if (size.on_cpu) return loss + (execution.checkpoint_activations ? values : values / 8 * 11);
    if (execution.compute == at::kFloat) return loss + values;
    if (adapted.empty()) return loss + values / 8 * 7;
    const bool fused = fused::HasKernels() || !at::hasCUDA();  // A plan may be made elsewhere.
    return loss + (fused && !execution.checkpoint_activations ? values / 10 * 9 : values);
  }

  // Counted in float32. In bfloat16 products and what they read take half.
  uint64_t SamplingBytes(const Execution& execution, const ForwardSize& size) const override {
    const SymbolValues sizes = SizesOf(size);
    const uint64_t values =
        peaks_.Get(sizes, [&] { return PeakBytes(program_, sizes).value_or(0); });
    return execution.compute == at::kFloat || size.on_cpu ? values : values / 4 * 3;
  }

  absl::StatusOr<std::unique_ptr<VelocityModel>> Make(const NamedTensors& weights,
                                                      const LoraAdapter* adapter,
                                                      const Execution& execution) const override {
    return MakeExportedTransformer(program_, weights, adapter, execution);
  }

 private:
  uint64_t Blocks() const {
    return std::max<uint64_t>(1, std::ranges::count_if(program_->sections, &Section::block));
  }
  // Blocks whose inputs are on the device where the others' are on the host.
  uint64_t InputsAtOnce() const { return std::min<uint64_t>(3, Blocks()); }

  SymbolValues SizesOf(const ForwardSize& size) const {
    const std::vector<int64_t>& shape = size.latent_shape;
    const int64_t block = size.on_cpu ? RowsOfBlock(program_->graph) : 1;
    return {{"B", (size.rows + block - 1) / block * block},
            {"H", shape[shape.size() - 2]},
            {"W", shape.back()},
            {"F", shape[1]},
            {"S", std::max(size.prompt_tokens, int64_t{1})}};
  }

  const std::shared_ptr<const Program> program_;
  const LatentGeometry latent_;
  const std::vector<ConditioningPart> conditioning_;
  const std::string graph_json_;
  std::set<std::string> buffers_, float32_;
  bool takes_guidance_ = false;
  double default_guidance_ = 0;
  mutable KnownAnswers<std::pair<SymbolValues, std::vector<std::string>>, absl::StatusOr<KeptBytes>>
      kept_;
  mutable KnownAnswers<SymbolValues, uint64_t> peaks_;
};

absl::StatusOr<std::shared_ptr<const Architecture>> FromGraph(const ArchitectureSource& source) {
  OXBOW_ASSIGN_OR_RETURN(Graph graph, ParseGraph(source.graph_json));
  if (graph.class_name != source.class_name) {
    return absl::InvalidArgumentError(
        absl::StrCat("class: ", graph.class_name, " instead of ", source.class_name));
  }
  if (!graph.velocity)
    return absl::InvalidArgumentError("latent: missing: not a transformer's graph");
  OXBOW_RETURN_IF_ERROR(CheckConfig(graph, source.config_json));
  OXBOW_ASSIGN_OR_RETURN(const LatentGeometry latent, GeometryOf(graph));
  OXBOW_ASSIGN_OR_RETURN(std::vector<ConditioningPart> parts, ConditioningOf(graph));
  OXBOW_ASSIGN_OR_RETURN(const auto program, Compile(std::move(graph)));
  const auto kept = DryRun(program, ProbeSizes(program->graph, latent));
  if (!kept.ok() && !absl::IsUnimplemented(kept.status())) return kept.status();
  return std::make_shared<const ExportedArchitecture>(program, latent, std::move(parts),
                                                      source.graph_json);
}

}  // namespace
}  // namespace oxbow::model::exported

namespace oxbow::model {

absl::StatusOr<std::shared_ptr<const Architecture>> ReadArchitecture(
    const ArchitectureSource& source) {
  auto architecture = exported::FromGraph(source);
  if (!architecture.ok()) return Annotate(architecture.status(), "graph");
  return architecture;
}

}  // namespace oxbow::model
