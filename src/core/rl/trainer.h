// SPDX-License-Identifier: Apache-2.0
// One learner step: from groups of trajectories to new weights. No RPC, clock or global generator.
//
// All methods share this. Order of one step: advantages and masking; what the method must know
// of the policy before it moves (method.h); `updates` updates, `passes` times over; then the copies
// that follow the policy.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "core/parallel/host_copy.h"
#include "core/rl/experience.h"
#include "core/rl/options.h"

namespace oxbow::parallel {
class Ranks;
}
namespace oxbow::model {
class Policy;
}

namespace oxbow::rl {

struct StepResult {
  std::map<std::string, double> metrics;  // Named as in metrics.jsonl: "train/loss", ...
  std::vector<EntryId> used;              // Replayed heads that were trained on.
  std::vector<EntryId> evict;             // Weight non-finite or under the floor.
};

class Trainer {
 public:
  // `policy` and `ranks` outlive the trainer. Owned by one thread. DiffusionNFT and AWM's pull need
  // a policy that keeps an old one, reference_every one whose reference moves.
  Trainer(TrainerOptions options, model::Policy& policy, parallel::Ranks& ranks);
  ~Trainer();

  // Trains on the groups of learner step `step`. Called on all ranks with the same groups in the
  // same order, those of a rank side by side and ranks in their order; the latents of a rank's
  // groups (HoldersOf) are real there, the others may be on the meta device. Every rank ends with
  // the same weights, and the same result up to float32 reduction order; the same bits where
  // `deterministic`. On-policy means behaviour_version
  // == version() at entry. kInternal with the step and first bad tensor if loss or gradients are
  // not finite; weights are then as before the step. kDataLoss names the first tensor in which
  // ranks differ.
  // Once `interrupted` answers true, returns kCancelled, and weights are as before the step. One
  // rank asks between passes; several before the first and after each update, and any rank's yes
  // stops all.
  absl::StatusOr<StepResult> Step(LearnerStep step, const std::vector<Group>& groups,
                                  const std::function<bool()>& interrupted = {});

  // Signals that Step would find in these groups, whose latents it does not read; see step_plan.h.
  std::vector<bool> HaveSignal(const std::vector<Group>& groups) const;

  // Updates so far: updates * passes per step, also where nothing could be learnt, so that a
  // version names a step. Such an update leaves weights, moments and running average alone.
  PolicyVersion version() const;

  // Everything a resumed run needs besides the policy's own tensors: optimiser moments, counters,
  // and the copies that follow the policy, for any number of ranks. Called on all ranks; errors as
  // in parallel/ranks.h.
  absl::StatusOr<std::map<std::string, at::Tensor>> State() const;
  absl::Status LoadState(const std::map<std::string, at::Tensor>& state);

  // The result of State in two parts, for a checkpoint: this rank's moments and the rest, which is
  // the same on every rank. Where ranks hold a piece of the moments each, the pieces in rank order,
  // one after another, are the whole. No other rank is asked, and nothing is waited for: copies in
  // host memory may still be on their way from a GPU (parallel/host_copy.h).
  bool has_pieces() const;
  using HostCopies = std::map<std::string, parallel::HostCopy>;
  HostCopies CopyMoments() const;
  HostCopies CopyPolicies() const;
  at::Tensor Counters() const;

  // Called on all ranks, before anything else: of a full fine-tune whose weights are in host memory
  // and whose gradients are in pieces, the ranks of a machine keep weights and average once, and
  // each writes its part of them. Values are those of the machine's first rank. Else it does
  // nothing. Errors as in parallel/ranks.h.
  absl::Status ShareHostMemory();

  // Called on all ranks: all get the weights, running average and state of rank 0. `state` counts
  // there alone: what State() returned once, or nothing for a fresh start.
  absl::Status TakeStateOfRankZero(std::map<std::string, at::Tensor> state);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::rl
