// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint/checkpointing.h"

#include <ATen/ATen.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "config/fingerprint.h"
#include "config/run_config.h"
#include "io/lora_file.h"
#include "io/tensor_torch.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"

namespace oxbow::learner {
namespace {

constexpr char kWeights[] = "weights.safetensors";
constexpr char kEma[] = "ema.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";

absl::Status WriteOne(const std::filesystem::path& directory, const model::ParameterSet& trained,
                      const model::Policy& policy, const v1::RunConfig& config,
                      const std::string& config_json, PolicyVersion version) {
  const std::map<std::string, std::string> provenance = {
      {"oxbow.run", config.run().name()},
      {"oxbow.policy_version", absl::StrCat(version.value)},
      {"oxbow.base_model", config.model().path()}};
  if (config.model().trained() == v1::TRAINED_PART_LORA) {
    const v1::LoraConfig& lora = config.model().lora();
    const io::LoraExport adapter{.tensors = io::AllFromTorch(trained.tensors()),
                                 .rank = lora.rank(),
                                 .alpha = lora.alpha(),
                                 .targets = {lora.targets().begin(), lora.targets().end()},
                                 .base_model = config.model().path(),
                                 .provenance = provenance};
    OXBOW_RETURN_IF_ERROR(io::WriteDiffusersLora(directory, adapter));
    return io::WritePeftLora(directory / "peft", adapter);
  }
  model::NamedTensors tensors = trained.tensors();
  tensors.insert(policy.frozen().begin(), policy.frozen().end());
  return io::WriteTransformer(directory, config_json, io::AllFromTorch(tensors), provenance);
}

}  // namespace

Checkpointing::Checkpointing(const std::filesystem::path& run_directory,
                             const v1::RunConfig& config,
                             std::map<std::string, std::string> prompts_sha256)
    : run_directory_(run_directory),
      store_(run_directory / "checkpoints", config.checkpoint().keep(), config.checkpoint().best()),
      config_(config),
      prompts_sha256_(std::move(prompts_sha256)) {}

absl::Status Checkpointing::CheckConfig(const RunState& state) const {
  using config::FingerprintAge, config::FingerprintOf;
  if (state.config_sha256 == FingerprintOf(config_)) return absl::OkStatus();
  if (state.config_sha256 == FingerprintOf(config_, FingerprintAge::kFormer)) {
    return absl::OkStatus();
  }
  // The run may have had another name and place.
  for (const char* file : {config::kFormerConfig, config::kResolvedConfig}) {
    const auto former = config::LoadResolved(run_directory_ / file);
    if (!former.ok()) continue;
    v1::RunConfig then = config_;
    config::CopyFormerFields(*former, then);
    if (state.config_sha256 != FingerprintOf(then, FingerprintAge::kFormer)) continue;
    if (former->model().path() == config_.model().path()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "model.path is ", former->model().path(), " in the run, ", config_.model().path(),
        " here, and its checkpoints, which are of an older version, do not say which model they "
        "are of: resume once with the former path"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the checkpoint is of another config: put back what was changed by hand in ",
                   (run_directory_ / config::kResolvedConfig).string(),
                   " (oxbow resume --set says which keys may change)"));
}

// Checks the prompts of training alone: held-out prompts change no training.
absl::Status Checkpointing::CheckPrompts(const RunState& state) const {
  constexpr char kTrain[] = "prompts.train";
  const auto now = prompts_sha256_.find(kTrain);
  if (now == prompts_sha256_.end()) return absl::OkStatus();
  const auto before = state.prompts_sha256.find(kTrain);
  if (before == state.prompts_sha256.end()) {
    OXBOW_LOG(Warning) << "the checkpoint does not say which prompts it was made with: that they "
                          "are the same is not checked"
                       << Field("step", state.committed_steps);
    return absl::OkStatus();
  }
  if (before->second == now->second) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("prompts.train has other prompts than when the checkpoint was made: bring the "
                   "file back, or begin another run: ",
                   config_.prompts().train()));
}

absl::Status Checkpointing::CheckModel(
    const RunState& state, const std::map<std::string, std::string>& model_sha256) const {
  for (const auto& [component, digest] : model_sha256) {
    const auto before = state.model_sha256.find(component);
    if (before == state.model_sha256.end() || before->second == digest) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("model.path: ", component,
                     " is another than when the checkpoint was made: bring the model "
                     "back, or begin another run: ",
                     config_.model().path()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> Checkpointing::LoadNewest() const {
  OXBOW_ASSIGN_OR_RETURN(Checkpoint checkpoint, store_.LoadNewest());
  OXBOW_RETURN_IF_ERROR(CheckConfig(checkpoint.state));
  OXBOW_RETURN_IF_ERROR(CheckPrompts(checkpoint.state));
  return checkpoint;
}

absl::Status Checkpointing::RestoreWeights(const Checkpoint& checkpoint,
                                           model::Policy& policy) const {
  {
    OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors weights, TensorsOf(checkpoint, kWeights));
    OXBOW_RETURN_IF_ERROR(policy.Load(weights));
  }
  if (!config_.ema().enabled()) return absl::OkStatus();
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
  if (config_.ema().enabled()) copy.flat.emplace(kEma, CopyOf(policy.ema_parameters()));
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
  state.config_sha256 = config::FingerprintOf(config_);
  state.prompts_sha256 = prompts_sha256_;
  std::map<std::string, FileContent> files;
  for (auto& [file, tensors] : copy.tensors) files[file] = ContentOf(tensors);
  for (auto& [file, flat] : copy.flat) files[file] = ContentOf(flat);
  for (auto& [file, cut] : copy.chunked) files[file] = ContentOf(cut);
  OXBOW_ASSIGN_OR_RETURN(const uint64_t bytes, store_.Write(state, files, may_commit, others));
  RememberCheckpoint(run_directory_, state.committed_steps);
  return bytes;
}

absl::Status WriteFinalWeights(const std::filesystem::path& directory, model::Policy& policy,
                               const v1::RunConfig& config,
                               const std::string& transformer_config_json, PolicyVersion version) {
  const bool ema = config.ema().enabled();
  OXBOW_RETURN_IF_ERROR(WriteOne(directory, ema ? policy.ema_parameters() : policy.parameters(),
                                 policy, config, transformer_config_json, version));
  return WriteOne(directory / "raw", policy.parameters(), policy, config, transformer_config_json,
                  version);
}

}  // namespace oxbow::learner
