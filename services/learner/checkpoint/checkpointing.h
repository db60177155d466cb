// SPDX-License-Identifier: Apache-2.0
// The tensors of a run in a checkpoint, and how a run goes on from one.
//
//   weights.safetensors     the trained part
//   ema.safetensors         its running average, where EMA is on
//   optimizer.safetensors   moments and counters; moments that are spread over ranks are in files
//                           of their own (PieceName)
//
// A checkpoint is written from a copy of the tensors in host memory, so that training goes on
// meanwhile. That copy is all the memory it takes, whatever the size of the files. What is on a GPU
// leaves it while training goes on, too. Moments that are in host memory anyway are not copied: the
// next update puts others in their place, and the checkpoint keeps those that it was promised.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "core/model/policy.h"
#include "core/rl/trainer.h"
#include "oxbow/v1/config.pb.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"

namespace oxbow::learner {

// The copies that a checkpoint is written from, by file name.
struct CheckpointCopy {
  std::map<std::string, FlatCopy> flat;
  std::map<std::string, TensorCopies> tensors;
  std::map<std::string, weights::Snapshot> chunked;
};

class Checkpointing {
 public:
  // `prompts_sha256`: as in RunState, of the prompts that this start has read.
  Checkpointing(const std::filesystem::path& run_directory, const v1::RunConfig& config,
                std::map<std::string, std::string> prompts_sha256 = {});

  const CheckpointStore& store() const { return store_; }

  // The newest whole checkpoint. Errors as CheckpointStore::LoadNewest; kFailedPrecondition if its
  // config has another fingerprint (config/fingerprint.h), or if the training prompts have changed.
  // Checkpoints of older versions knew name, place and paths of their run: what those were is in
  // the directory (FormerConfig).
  absl::StatusOr<Checkpoint> LoadNewest() const;

  // Restores weights and running average. kDataLoss names what is missing.
  absl::Status RestoreWeights(const Checkpoint& checkpoint, model::Policy& policy) const;

  // Optimiser moments and counters, as Trainer::State returned them.
  absl::StatusOr<model::NamedTensors> TrainerState(const Checkpoint& checkpoint) const;

  // Begins a copy of weights and running average to the host.
  CheckpointCopy CopyWeights(model::Policy& policy) const;
  // Adds a copy of the trainer's state. Of moments that are spread over ranks it has this rank's
  // piece, in a file of its own.
  static void AddTrainerState(const rl::Trainer& trainer, int rank, int ranks,
                              CheckpointCopy& copy);

  // Returns the bytes written. Fills in the state's hashes of config and prompts. Frees each file's
  // tensors once they are written. Thread-safe, one call at a time.
  // `may_commit` and `others` as in CheckpointStore::Write.
  absl::StatusOr<uint64_t> Write(RunState state, CheckpointCopy copy,
                                 const std::function<absl::Status()>& may_commit = {},
                                 const CheckpointStore::Others& others = nullptr) const;

  // Refuses a model that is not the checkpoint's, by component. `model_sha256` as in RunState.
  absl::Status CheckModel(const RunState& state,
                          const std::map<std::string, std::string>& model_sha256) const;

 private:
  absl::Status CheckConfig(const RunState& state) const;
  absl::Status CheckPrompts(const RunState& state) const;

  const std::filesystem::path run_directory_;
  const CheckpointStore store_;
  const v1::RunConfig config_;
  const std::map<std::string, std::string> prompts_sha256_;
};

// Writes the result of a finished run for other tools: a transformer or an adapter that diffusers
// loads. Into `directory`:
//   full   transformer/ (averaged weights if EMA is on) and raw/transformer/
//   LoRA   pytorch_lora_weights.safetensors and peft/ (averaged), and the same in raw/
absl::Status WriteFinalWeights(const std::filesystem::path& directory, model::Policy& policy,
                               const v1::RunConfig& config,
                               const std::string& transformer_config_json, PolicyVersion version);

}  // namespace oxbow::learner
