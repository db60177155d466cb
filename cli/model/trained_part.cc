// SPDX-License-Identifier: Apache-2.0
#include "cli/model/trained_part.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "cli/report/run_summary.h"
#include "cli/version.h"
#include "config/file_paths.h"
#include "config/hub_cache.h"
#include "config/run_config.h"
#include "io/safetensors.h"
#include "services/learner/checkpoint/checkpoint_store.h"

namespace oxbow::cli {
namespace {

constexpr char kWeights[] = "weights.safetensors";
constexpr char kAverage[] = "ema.safetensors";
constexpr std::string_view kDown = ".lora_A.weight";

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
    if (!name.ends_with(kDown)) continue;
    trained.config.mutable_model()->mutable_lora()->add_targets(
        name.substr(0, name.size() - kDown.size()));
  }
}

}  // namespace

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
    if (!name.ends_with(kDown)) continue;
    const std::string module = name.substr(0, name.size() - kDown.size());
    const io::TensorBytes& up = trained.tensors.at(module + ".lora_B.weight");
    OXBOW_RETURN_IF_ERROR(
        CheckOne(module + ".weight", {up.shape[0], down.shape[1]}, base, base_path));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RunConfig> ConfigOfRun(const std::filesystem::path& run) {
  auto config = config::LoadResolved(run / "config.resolved.yaml");
  if (absl::IsNotFound(config.status())) return NoRun(run);
  if (!config.ok()) return config;
  std::error_code ignored;
  config::FindFilesFrom(
      std::filesystem::absolute(run, ignored),
      [&](const std::filesystem::path& path) { return std::filesystem::exists(path, ignored); },
      *config);
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
