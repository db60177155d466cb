// The tensors of a run in a checkpoint, and how a run goes on from one.
//
//   weights.safetensors     the trained part
//   ema.safetensors         its running average, where EMA is on
//   optimizer.safetensors   moments and counters
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/policy.h"
#include "core/rl/trainer.h"
#include "oxbow/v1/config.pb.h"
#include "services/learner/checkpoint_store.h"

namespace oxbow::learner {

// Owned by the thread that owns torch.
class Checkpointing {
 public:
  Checkpointing(const std::filesystem::path& run_directory, const v1::RunConfig& config);

  // Whether there is no checkpoint, whole or damaged.
  bool empty() const { return store_.empty(); }

  // The newest whole checkpoint. Errors as CheckpointStore::LoadNewest; kFailedPrecondition if its
  // config has another fingerprint (config/fingerprint.h).
  absl::StatusOr<Checkpoint> LoadNewest() const;

  // Restores weights, running average and optimiser. kDataLoss names what is missing.
  absl::Status Restore(const Checkpoint& checkpoint, model::Policy& policy,
                       rl::Trainer& trainer) const;

  // Optimiser moments and counters, as Trainer::State returned them.
  absl::StatusOr<model::NamedTensors> TrainerState(const Checkpoint& checkpoint) const;

  // Returns the bytes written. Fills in the state's config_sha256.
  absl::StatusOr<uint64_t> Write(RunState state, model::Policy& policy,
                                 const rl::Trainer& trainer) const;

 private:
  const CheckpointStore store_;
  const std::string fingerprint_;
  const bool ema_;
};

}  // namespace oxbow::learner
