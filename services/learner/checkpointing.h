// What a checkpoint holds of a run's tensors, and how a run goes on from one.
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
#include "services/learner/desk/checkpoint_store.h"

namespace oxbow::learner {

// What a resumed run must share with the one it goes on from: all but how long, how often and
// where.
std::string ConfigFingerprint(v1::RunConfig config);

// Owned by the thread that owns torch.
class Checkpointing {
 public:
  Checkpointing(const std::filesystem::path& run_directory, const v1::RunConfig& config);

  // Whether there is no checkpoint, whole or damaged.
  bool empty() const { return store_.empty(); }

  // The newest whole checkpoint. Errors as CheckpointStore's; kFailedPrecondition if it is of
  // another config.
  absl::StatusOr<Checkpoint> LoadNewest() const;

  // Brings weights, running average and optimiser to where they were. kDataLoss names what lacks.
  absl::Status Restore(const Checkpoint& checkpoint, model::Policy& policy,
                       rl::Trainer& trainer) const;

  // Optimiser moments and counters, as Trainer::State gave them.
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
