#include "services/learner/checkpointing.h"

#include <ATen/ATen.h>

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "config/fingerprint.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "io/weight_files.h"

namespace oxbow::learner {
namespace {

constexpr char kWeights[] = "weights.safetensors";
constexpr char kEma[] = "ema.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";

at::Tensor OnHost(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
  return host.is_alias_of(tensor) ? host.clone() : host;
}

model::NamedTensors AllOnHost(const model::NamedTensors& tensors) {
  model::NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies[name] = OnHost(tensor);
  return copies;
}

std::string_view BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

FileContent ContentOf(model::NamedTensors& tensors) {
  return [&tensors](const WritePiece& write) -> absl::Status {
    std::map<std::string, io::TensorHeader> headers;
    for (const auto& [name, tensor] : tensors) headers[name] = io::HeaderOf(tensor);
    const absl::Status status = io::StreamSafetensors(
        headers, /*metadata=*/{},
        [&](const std::string& name) -> absl::StatusOr<std::string_view> {
          return BytesOf(tensors.at(name));
        },
        write);
    tensors.clear();
    return status;
  };
}

// Tensors of their own; the file is mapped meanwhile.
absl::StatusOr<model::NamedTensors> TensorsOf(const Checkpoint& checkpoint,
                                              const std::string& file) {
  if (!checkpoint.files.contains(file)) {
    return absl::DataLossError(absl::StrCat("checkpoint lacks a file: ", file));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::WeightFiles mapped,
                         io::WeightFiles::OpenFile(checkpoint.directory / file));
  model::NamedTensors tensors;
  for (const auto& [name, header] : mapped.headers()) {
    tensors[name] = io::CopyOf(header.dtype, header.shape, mapped.BytesOf(name));
    mapped.Release(name);
  }
  return tensors;
}

}  // namespace

Checkpointing::Checkpointing(const std::filesystem::path& run_directory,
                             const v1::RunConfig& config,
                             std::map<std::string, std::string> prompts_sha256)
    : store_(run_directory / "checkpoints", config.checkpoint().keep()),
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
  return TensorsOf(checkpoint, kOptimizer);
}

HostCopy Checkpointing::CopyWeights(model::Policy& policy) const {
  HostCopy copy;
  copy[kWeights] = AllOnHost(policy.parameters().tensors());
  if (ema_) copy[kEma] = AllOnHost(policy.ema_parameters().tensors());
  return copy;
}

void Checkpointing::AddTrainerState(model::NamedTensors state, HostCopy& copy) {
  model::NamedTensors& taken = copy[kOptimizer];
  while (!state.empty()) {
    const auto node = state.extract(state.begin());
    const at::Tensor& tensor = node.mapped();
    // No other handle and no view of it.
    const bool ours = tensor.is_cpu() && tensor.is_contiguous() && tensor.use_count() == 1 &&
                      tensor.storage().use_count() == 1;
    taken[node.key()] = ours ? tensor : OnHost(tensor);
  }
}

absl::StatusOr<uint64_t> Checkpointing::Write(
    RunState state, HostCopy copy, const std::function<absl::Status()>& may_commit) const {
  state.config_sha256 = fingerprint_;
  state.prompts_sha256 = prompts_sha256_;
  std::map<std::string, FileContent> files;
  for (auto& [file, tensors] : copy) files[file] = ContentOf(tensors);
  return store_.Write(state, files, may_commit);
}

}  // namespace oxbow::learner
