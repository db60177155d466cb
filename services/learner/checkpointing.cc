#include "services/learner/checkpointing.h"

#include <ATen/ATen.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "config/fingerprint.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::learner {
namespace {

constexpr char kWeights[] = "weights.safetensors";
constexpr char kEma[] = "ema.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";

std::string FileOf(const model::NamedTensors& tensors) {
  return io::SerializeSafetensors({.tensors = io::AllFromTorch(tensors)});
}

absl::StatusOr<model::NamedTensors> TensorsOf(const Checkpoint& checkpoint,
                                              const std::string& file) {
  const auto found = checkpoint.files.find(file);
  if (found == checkpoint.files.end()) {
    return absl::DataLossError(absl::StrCat("checkpoint lacks a file: ", file));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::Safetensors parsed, io::ParseSafetensors(found->second, file));
  model::NamedTensors tensors;
  for (const auto& [name, bytes] : parsed.tensors) {
    OXBOW_ASSIGN_OR_RETURN(tensors[name], io::ToTorch(bytes));
  }
  return tensors;
}

}  // namespace

Checkpointing::Checkpointing(const std::filesystem::path& run_directory,
                             const v1::RunConfig& config)
    : store_(run_directory / "checkpoints", config.checkpoint().keep()),
      fingerprint_(config::FingerprintOf(config)),
      ema_(config.ema().enabled()) {}

absl::StatusOr<Checkpoint> Checkpointing::LoadNewest() const {
  OXBOW_ASSIGN_OR_RETURN(Checkpoint checkpoint, store_.LoadNewest());
  if (checkpoint.state.config_sha256 != fingerprint_) {
    return absl::FailedPreconditionError(
        "the checkpoint is of another config: resume with the config it was made with");
  }
  return checkpoint;
}

absl::Status Checkpointing::Restore(const Checkpoint& checkpoint, model::Policy& policy,
                                    rl::Trainer& trainer) const {
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors weights, TensorsOf(checkpoint, kWeights));
  OXBOW_RETURN_IF_ERROR(policy.Load(weights));
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors state, TrainerState(checkpoint));
  OXBOW_RETURN_IF_ERROR(trainer.LoadState(state));
  if (!ema_) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors average, TensorsOf(checkpoint, kEma));
  policy.ema_parameters().CopyFrom(model::ParameterSet(average, /*trainable=*/false));
  return absl::OkStatus();
}

absl::StatusOr<model::NamedTensors> Checkpointing::TrainerState(
    const Checkpoint& checkpoint) const {
  return TensorsOf(checkpoint, kOptimizer);
}

absl::StatusOr<uint64_t> Checkpointing::Write(RunState state, model::Policy& policy,
                                              const rl::Trainer& trainer) const {
  state.config_sha256 = fingerprint_;
  Checkpoint checkpoint{.state = std::move(state), .files = {}};
  checkpoint.files[kWeights] = FileOf(policy.parameters().tensors());
  if (ema_) checkpoint.files[kEma] = FileOf(policy.ema_parameters().tensors());
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors optimizer, trainer.State());
  checkpoint.files[kOptimizer] = FileOf(optimizer);
  return store_.Write(checkpoint);
}

}  // namespace oxbow::learner
