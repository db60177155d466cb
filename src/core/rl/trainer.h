// One learner step: from groups of trajectories to new weights. No RPC, clock or global generator.
//
// OP-GRPO with every setting that makes it Flow-GRPO (no replayed samples), off-policy with a
// sequence-level correction, or the naive per-step baseline. Order of one step: advantages,
// masking, pi_old log-probs of off-policy transitions and their weight W, then `updates` clipped
// updates.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "core/flow/dynamics.h"
#include "core/flow/window.h"
#include "core/rl/advantage.h"
#include "core/rl/correction.h"
#include "core/rl/experience.h"
#include "core/rl/kl.h"

namespace oxbow::parallel {
class Ranks;
}
namespace oxbow::model {
class Policy;
}

namespace oxbow::rl {

// What a loss is divided by: B T_train with B all samples, or those of groups with variance only. A
// sample with fewer trained steps weighs less.
enum class ZeroVariance { kMeanOverAll, kMeanOverKept };

struct TrainerOptions {
  flow::SamplingSpec sampling;  // Its sde flags are the trained steps (the last step never is).
  std::optional<flow::WindowPlan> window;  // Which of them are, by learner step; none: all.
  bool cps_surrogate = true;  // Ratios of cps steps on the published scale; W is of densities.
  uint64_t run_seed = 0;
  int updates = 2;
  // One gradient per group, added in the order of groups: the same bits for every number of ranks.
  // Costs smaller batches, and a gradient per group on the wire.
  bool deterministic = false;
  // With several ranks: learner steps between comparisons of their weights; 0: never.
  int agreement_every = 0;
  // With several ranks: each keeps the optimiser's moments of its own piece of the weights.
  bool shard_optimizer = false;

  double clip_range = 1e-4;
  double advantage_clip = 5;
  AdvantageStd advantage_std = AdvantageStd::kGroup;
  ZeroVariance zero_variance = ZeroVariance::kMeanOverAll;
  Correction correction = Correction::kSequence;
  WeightScale weight_scale = WeightScale::kMean;
  bool weight_geometric = false;
  double weight_cap = 2;
  double weight_floor = 0;
  double weight_log_clamp = 20;
  int kept_steps = 0;  // i_off of stale fresh trajectories; 0: the steps with kc < kept_kc_max.
  double kept_kc_max = 0.3;
  double kl_weight = 0;
  KlSpace kl_space = KlSpace::kVelocity;
  bool kl_all_steps = false;

  double learning_rate = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-4;
  double grad_norm_max = 1;
  int warmup_updates = 0;

  bool ema_enabled = true;
  double ema_decay_max = 0.9;
};

struct StepResult {
  std::map<std::string, double> metrics;  // Named as in metrics.jsonl: "train/loss", ...
  std::vector<EntryId> used;              // Replayed heads that were trained on.
  std::vector<EntryId> evict;             // Weight non-finite or under the floor.
};

class Trainer {
 public:
  // `policy` and `ranks` outlive the trainer. Owned by one thread.
  Trainer(TrainerOptions options, model::Policy& policy, parallel::Ranks& ranks);
  ~Trainer();

  // Trains on the groups of learner step `step`. Called on all ranks with the same groups in the
  // same order; the latents of a rank's share of them (parallel/share.h) are real there, the others
  // may be on the meta device. Every rank ends with the same weights, and the same result up to
  // float32 reduction order; the same bits where `deterministic`. On-policy means behaviour_version
  // == version() at entry. kInternal with the step and first bad tensor if loss or gradients are
  // not finite; weights are then as before the step. kDataLoss names the first tensor in which
  // ranks differ.
  absl::StatusOr<StepResult> Step(LearnerStep step, const std::vector<Group>& groups);

  // Updates so far: `updates` per step, also where nothing could be learnt, so that a version names
  // a step. Such an update leaves weights, moments and running average alone.
  PolicyVersion version() const;

  // Everything a resumed run needs besides the policy's own tensors: optimiser moments and
  // counters, for any number of ranks. Called on all ranks; errors as in parallel/ranks.h.
  absl::StatusOr<std::map<std::string, at::Tensor>> State() const;
  absl::Status LoadState(const std::map<std::string, at::Tensor>& state);

  // Called on all ranks: all get the weights, running average and state of rank 0. `state` counts
  // there alone: what State() returned once, or nothing for a fresh start.
  absl::Status TakeStateOfRankZero(std::map<std::string, at::Tensor> state);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::rl
