// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpointing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "config/fingerprint.h"
#include "services/learner/checkpoint_tensors.h"
#include "services/learner/optimizer_pieces.h"

namespace oxbow::learner {
namespace {

constexpr char kWeights[] = "weights.safetensors";
constexpr char kEma[] = "ema.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";

}  // namespace

Checkpointing::Checkpointing(const std::filesystem::path& run_directory,
                             const v1::RunConfig& config,
                             std::map<std::string, std::string> prompts_sha256)
    : store_(run_directory / "checkpoints", config.checkpoint().keep(), config.checkpoint().best()),
      fingerprint_(config::FingerprintOf(config)),
      prompts_sha256_(std::move(prompts_sha256)),
      prompt_files_(
          {{"prompts.train", config.prompts().train()}, {"prompts.eval", config.prompts().eval()}}),
      ema_(config.ema().enabled()) {}

absl::Status Checkpointing::CheckPrompts(const RunState& state) const {
  if (state.prompts_sha256.empty() && !prompts_sha256_.empty()) {
    OXBOW_LOG(Warning) << "the checkpoint does not say which prompts it was made with: that they "
                          "are the same is not checked"
                       << Field("step", state.committed_steps);
  }
  for (const auto& [key, hash] : prompts_sha256_) {
    const auto before = state.prompts_sha256.find(key);
    if (before == state.prompts_sha256.end() || before->second == hash) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        key,
        " has other prompts than when the checkpoint was made: bring the file back, or begin "
        "another run: ",
        prompt_files_.at(key)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> Checkpointing::LoadNewest() const {
  OXBOW_ASSIGN_OR_RETURN(Checkpoint checkpoint, store_.LoadNewest());
  if (checkpoint.state.config_sha256 != fingerprint_) {
    return absl::FailedPreconditionError(
        "the checkpoint is of another config: resume with the config it was made with");
  }
  OXBOW_RETURN_IF_ERROR(CheckPrompts(checkpoint.state));
  return checkpoint;
}

absl::Status Checkpointing::RestoreWeights(const Checkpoint& checkpoint,
                                           model::Policy& policy) const {
  {
    OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors weights, TensorsOf(checkpoint, kWeights));
    OXBOW_RETURN_IF_ERROR(policy.Load(weights));
  }
  if (!ema_) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors average, TensorsOf(checkpoint, kEma));
  policy.ema_parameters().CopyFrom(model::ParameterSet(average, /*trainable=*/false));
  return absl::OkStatus();
}

absl::StatusOr<model::NamedTensors> Checkpointing::TrainerState(
    const Checkpoint& checkpoint) const {
  OXBOW_ASSIGN_OR_RETURN(model::NamedTensors state, TensorsOf(checkpoint, kOptimizer));
  OXBOW_ASSIGN_OR_RETURN(model::NamedTensors moments, JoinPieces(checkpoint));
  state.merge(moments);
  return state;
}

CheckpointCopy Checkpointing::CopyWeights(model::Policy& policy) const {
  CheckpointCopy copy;
  copy.flat.emplace(kWeights, CopyOf(policy.parameters()));
  if (ema_) copy.flat.emplace(kEma, CopyOf(policy.ema_parameters()));
  return copy;
}

void Checkpointing::AddTrainerState(const rl::Trainer& trainer, int rank, int ranks,
                                    CheckpointCopy& copy) {
  copy.tensors[kOptimizer].flat = trainer.CopyPolicies();
  copy.tensors[kOptimizer].small["counters"] = trainer.Counters();
  const std::string moments = trainer.has_pieces() ? PieceName(rank, ranks) : kOptimizer;
  copy.tensors[moments].flat.merge(trainer.CopyMoments());
}

absl::StatusOr<uint64_t> Checkpointing::Write(RunState state, CheckpointCopy copy,
                                              const std::function<absl::Status()>& may_commit,
                                              const CheckpointStore::Others& others) const {
  state.config_sha256 = fingerprint_;
  state.prompts_sha256 = prompts_sha256_;
  std::map<std::string, FileContent> files;
  for (auto& [file, tensors] : copy.tensors) files[file] = ContentOf(tensors);
  for (auto& [file, flat] : copy.flat) files[file] = ContentOf(flat);
  for (auto& [file, cut] : copy.chunked) files[file] = ContentOf(cut);
  return store_.Write(state, files, may_commit, others);
}

}  // namespace oxbow::learner
