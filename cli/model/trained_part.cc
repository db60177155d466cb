#include "cli/model/trained_part.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/version.h"
#include "config/run_config.h"
#include "io/safetensors.h"
#include "services/learner/checkpoint_store.h"

namespace oxbow::cli {
namespace {

constexpr char kWeights[] = "weights.safetensors";
constexpr char kAverage[] = "ema.safetensors";

}  // namespace

absl::StatusOr<TrainedPart> ReadTrainedPart(const std::filesystem::path& run,
                                            std::optional<uint64_t> step, bool raw) {
  TrainedPart trained;
  OXBOW_ASSIGN_OR_RETURN(trained.config, config::LoadResolved(run / "config.resolved.yaml"));
  const learner::CheckpointStore store(run / "checkpoints", 1);
  OXBOW_ASSIGN_OR_RETURN(const learner::Checkpoint checkpoint,
                         step.has_value() ? store.LoadAt(*step) : store.LoadNewest());
  const bool average = !raw && checkpoint.files.contains(kAverage);
  const char* const file = average ? kAverage : kWeights;
  const std::filesystem::path path = checkpoint.directory / file;
  if (!checkpoint.files.contains(file)) {
    return absl::DataLossError("checkpoint lacks a file: " + path.string());
  }
  OXBOW_ASSIGN_OR_RETURN(io::Safetensors weights, io::ReadSafetensors(path));
  trained.tensors = std::move(weights.tensors);
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
