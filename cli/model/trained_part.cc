// SPDX-License-Identifier: Apache-2.0
#include "cli/model/trained_part.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "cli/report/run_summary.h"
#include "cli/run_option.h"
#include "cli/version.h"
#include "config/file_paths.h"
#include "config/run_config.h"
#include "io/adapter_file.h"
#include "io/diffusers_directory.h"
#include "services/learner/checkpoint/checkpoint_store.h"

namespace oxbow::cli {

namespace {

bool NamesCheckpoint(const std::string& text) {
  return text == "best" || text == "newest" ||
         (!text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit));
}

// The error of a text that is no path, of a run and a checkpoint that has no such name.
absl::Status CheckCheckpointName(const std::string& text) {
  const size_t at = text.rfind('@');
  std::error_code ignored;
  if (at == std::string::npos || std::filesystem::exists(text, ignored)) return absl::OkStatus();
  const std::string run = RunNamed(text.substr(0, at)), name = text.substr(at + 1);
  if (!std::filesystem::exists(std::filesystem::path(run) / config::kResolvedConfig, ignored)) {
    return absl::OkStatus();
  }
  const std::string nearest = NearestName(name, {"best", "newest"});
  return absl::InvalidArgumentError(absl::StrCat(
      "--from: behind @ goes a step, best or newest",
      nearest.empty() ? "" : absl::StrCat("; did you mean ", run, "@", nearest, "?"), ": ", text));
}

const char* KindOf(const v1::RunConfig& config) {
  return config.model().trained() == v1::TRAINED_PART_LORA ? "an adapter (lora)"
                                                           : "all weights (full)";
}

absl::StatusOr<run::StartWeights> StartFromFile(const std::string& path,
                                                const v1::ModelConfig& model) {
  if (model.trained() != v1::TRAINED_PART_LORA) {
    return absl::InvalidArgumentError(
        absl::StrCat("--from: an adapter is there and this run trains all weights; set "
                     "model.trained to lora: ",
                     path));
  }
  auto start = run::StartFromAdapter(model, path);
  if (!start.ok()) return Annotate(start.status(), "--from");
  return start;
}

// The layer of a tensor that is the first of its adapter; nothing for another tensor.
std::optional<std::string> AdaptedLayer(const std::string& name) {
  const absl::string_view layer = absl::StripSuffix(name, kLoraDown);
  return layer.size() == name.size() ? std::nullopt : std::optional(std::string(layer));
}

// Requires an adapter that fits its model.
io::StoredAdapter StoredAdapterOf(TrainedPart trained) {
  const v1::LoraConfig& lora = trained.config.model().lora();
  io::StoredAdapter adapter;
  for (auto& [name, down] : trained.tensors) {
    const std::optional<std::string> layer = AdaptedLayer(name);
    if (!layer) continue;
    adapter.modules[*layer] = {.a = std::move(down),
                               .b = std::move(trained.tensors.at(*layer + kLoraUp)),
                               .scale = lora.alpha() / static_cast<double>(lora.rank())};
  }
  return adapter;
}

constexpr char kWeights[] = "weights.safetensors";
constexpr char kAverage[] = "ema.safetensors";

absl::Status CheckOne(const std::string& name, const std::vector<int64_t>& shape,
                      const std::map<std::string, io::TensorHeader>& base,
                      const std::string& base_path) {
  const auto found = base.find(name);
  if (found != base.end() && found->second.shape == shape) return absl::OkStatus();
  const std::string there =
      found == base.end() ? "no such tensor"
                          : absl::StrCat("shape [", absl::StrJoin(found->second.shape, ","), "]");
  return absl::FailedPreconditionError(
      absl::StrCat("the run's weights do not fit the base model at ", base_path, ", which has ",
                   there, ": ", name, " [", absl::StrJoin(shape, ","), "]"));
}

// A run that a learner was started for by hand may leave its targets to the architecture: then they
// are the layers that have an adapter.
void NameTargets(TrainedPart& trained) {
  if (!trained.lora() || !trained.config.model().lora().targets().empty()) return;
  for (const auto& [name, down] : trained.tensors) {
    const std::optional<std::string> layer = AdaptedLayer(name);
    if (layer) trained.config.mutable_model()->mutable_lora()->add_targets(*layer);
  }
}

}  // namespace

StartFrom ParseStartFrom(const std::string& text) {
  const size_t at = text.rfind('@');
  if (at == std::string::npos || !NamesCheckpoint(text.substr(at + 1))) return {.run = text};
  return {.run = text.substr(0, at), .checkpoint = text.substr(at + 1)};
}

absl::StatusOr<run::StartWeights> StartWeightsFrom(const std::string& text,
                                                   const v1::RunConfig& config) {
  StartFrom from = ParseStartFrom(text);
  from.run = RunNamed(from.run);
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::path(from.run) / config::kResolvedConfig,
                               ignored) &&
      io::HasAdapter(text)) {
    return StartFromFile(text, config.model());
  }
  OXBOW_RETURN_IF_ERROR(CheckCheckpointName(from.run));
  OXBOW_ASSIGN_OR_RETURN(TrainedPart trained, ReadTrainedPart(from.run, from.checkpoint));
  if (trained.config.model().trained() != config.model().trained()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--from: the run has trained ", KindOf(trained.config),
                     " and this one trains ", KindOf(config),
                     "; set model.trained, or go on from an `oxbow export --format merged "
                     "--whole-model` of it as model.path: ",
                     from.run));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(config.model().path()));
  OXBOW_ASSIGN_OR_RETURN(const auto headers,
                         io::ReadComponentHeaders(components.at("transformer")));
  OXBOW_RETURN_IF_ERROR(Annotate(CheckFits(trained, headers, config.model().path()), "--from"));
  run::StartWeights start{.from = absl::StrCat(from.run, ", step ", trained.step), .tensors = {}};
  if (!trained.lora()) {
    start.tensors = std::move(trained.tensors);
    return start;
  }
  auto tensors = run::AdapterFor(config.model().lora(), StoredAdapterOf(std::move(trained)));
  if (!tensors.ok()) return Annotate(tensors.status(), "--from");
  start.tensors = *std::move(tensors);
  return start;
}

io::LoraExport AdapterOf(const TrainedPart& trained) {
  const v1::LoraConfig& lora = trained.config.model().lora();
  return {.tensors = trained.tensors,
          .rank = lora.rank(),
          .alpha = lora.alpha(),
          .targets = {lora.targets().begin(), lora.targets().end()},
          .base_model = trained.config.model().path(),
          .provenance = trained.provenance};
}

absl::Status CheckFits(const TrainedPart& trained,
                       const std::map<std::string, io::TensorHeader>& base,
                       const std::string& base_path) {
  if (!trained.lora()) {
    for (const auto& [name, tensor] : trained.tensors) {
      OXBOW_RETURN_IF_ERROR(CheckOne(name, tensor.shape, base, base_path));
    }
    return absl::OkStatus();
  }
  OXBOW_RETURN_IF_ERROR(io::CheckLora(AdapterOf(trained)));
  for (const auto& [name, down] : trained.tensors) {
    const std::optional<std::string> layer = AdaptedLayer(name);
    if (!layer) continue;
    const io::TensorBytes& up = trained.tensors.at(*layer + kLoraUp);
    OXBOW_RETURN_IF_ERROR(
        CheckOne(*layer + ".weight", {up.shape[0], down.shape[1]}, base, base_path));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RunConfig> ConfigOfRun(const std::filesystem::path& run) {
  auto config = config::LoadResolved(run / config::kResolvedConfig);
  if (absl::IsNotFound(config.status())) return NoRun(run);
  if (!config.ok()) return config;
  config::FindFilesFrom(run, *config);
  config::FindFetchedModels(config::ProcessEnvironment(), *config);
  return config;
}

absl::StatusOr<TrainedPart> ReadTrainedPart(const std::filesystem::path& run,
                                            const std::string& checkpoint_name, bool raw) {
  TrainedPart trained;
  OXBOW_ASSIGN_OR_RETURN(trained.config, ConfigOfRun(run));
  const learner::CheckpointStore store(run / "checkpoints", 1);
  OXBOW_ASSIGN_OR_RETURN(const learner::Checkpoint checkpoint,
                         store.LoadNamed(checkpoint_name, trained.config.checkpoint().best()));
  trained.step = checkpoint.state.committed_steps;
  const bool average = !raw && checkpoint.files.contains(kAverage);
  const char* const file = average ? kAverage : kWeights;
  const std::filesystem::path path = checkpoint.directory / file;
  if (!checkpoint.files.contains(file)) {
    return absl::DataLossError("checkpoint lacks a file: " + path.string());
  }
  OXBOW_ASSIGN_OR_RETURN(io::Safetensors weights, io::ReadSafetensors(path));
  trained.tensors = std::move(weights.tensors);
  NameTargets(trained);
  const BuildFacts build = ThisBuild();
  trained.provenance = {{"oxbow.run", trained.config.run().name()},
                        {"oxbow.step", absl::StrCat(checkpoint.state.committed_steps)},
                        {"oxbow.policy_version", absl::StrCat(checkpoint.state.policy_version)},
                        {"oxbow.weights", average ? "ema" : "raw"},
                        {"oxbow.base_model", trained.config.model().path()},
                        {"oxbow.config_sha256", checkpoint.state.config_sha256},
                        {"oxbow.version", build.version},
                        {"oxbow.git", build.git}};
  return trained;
}

}  // namespace oxbow::cli
