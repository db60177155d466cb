// SPDX-License-Identifier: Apache-2.0
// Every setting of a trainer. Plain data; the defaults are Flow-GRPO's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "core/flow/dynamics.h"
#include "core/flow/window.h"
#include "core/rl/adamw.h"
#include "core/rl/advantage.h"
#include "core/rl/loss_weight.h"
#include "core/rl/method_facts.h"
#include "core/rl/policy_copies.h"
#include "core/rl/training_times.h"

namespace oxbow::rl {

// Where a ratio is clipped: to [1 - low, 1 + high].
struct ClipRange {
  double low = 0;
  double high = 0;
};

// Treatment of groups without variance. Masked samples train nothing, not even the KL; the loss
// is divided by B T_train with B all samples, or those of groups with variance only. Kept ones
// train with advantage 0.
enum class ZeroVariance { kMeanOverAll, kMeanOverKept, kUnmasked };

// The method's own section of a config, by key: numbers as they are, flags as 0 or 1, choices
// counted from 0. Empty: the defaults of the method's class.
struct MethodSettings {
  std::map<std::string, double> values;

  // The value of `key`. A section that is given has every key.
  template <typename T>
  T Get(const char* key, T otherwise) const {
    if (values.empty()) return otherwise;
    const auto found = values.find(key);
    OXBOW_CHECK(found != values.end()) << "no setting " << key << " in the method's section";
    return static_cast<T>(found->second);
  }
};

// In which space the KL to the reference is measured; see penalties.h.
enum class KlSpace { kVelocity, kMean, kTransition, kLatent };

struct KlOptions {
  double weight = 0;
  KlSpace space = KlSpace::kVelocity;
  bool all_steps = false;  // False: one random trained row of each sample and update.
  // Share of the weight that pulls towards the policy before the step (ReMix's KL-convex
  // constraint); the rest pulls towards the reference.
  double precedent = 0;

  bool pulls_to_precedent() const { return weight > 0 && precedent > 0; }
  bool pulls_to_reference() const { return weight > 0 && precedent < 1; }
};

// The pull towards the reference at noise levels that the method does not train; see penalties.h.
struct AnchorOptions {
  double weight = 0;  // Above 0, trajectories must reach their final latent.
  double high = 0.7;  // Upper end of its noise levels.
};

// The reward of a node of a tree (flow/split_tree.h), from those of its leaves; tree_training.h.
enum class BranchFusion { kMean, kSoftmax };

// The leaves of a group's trees that train.
enum class BranchPruning { kNone, kBest, kExtremes };

struct BranchOptions {
  BranchFusion fusion = BranchFusion::kMean;
  BranchPruning pruning = BranchPruning::kNone;
  double kept = 0.5;              // kExtremes: the share of the leaves that trains.
  std::vector<int> pruned_steps;  // Rising: they train nothing.
  int pruned_hold = 0;  // Learner steps before they move by one towards noise; 0: they stay.
};

struct TrainerOptions {
  flow::SamplingSpec sampling;  // Its sde flags are the trained steps (the last step never is).
  std::optional<flow::WindowPlan> window;  // The trained ones by learner step; none: all.
  uint64_t run_seed = 0;
  int updates = 2;        // Per pass.
  int passes = 1;         // Over the samples of a learner step.
  int replay_passes = 0;  // Over its replayed samples, where more than that.
  // ReMix's reincarnation: later learner steps pass their samples once, and the KL's reference
  // alone pulls; 0: never.
  uint64_t reincarnate_after = 0;
  bool IsReborn(uint64_t step) const { return reincarnate_after > 0 && step >= reincarnate_after; }
  KlOptions KlAt(uint64_t step) const {
    KlOptions at = kl;
    if (IsReborn(step)) at.precedent = 0;
    return at;
  }
  // Rows of one backward pass; 0: all rows of an update. At least a whole sample for a method that
  // needs its rows together.
  int rows_per_pass = 0;
  // Rows of one forward pass without gradients.
  size_t RowsPerForward() const {
    return rows_per_pass > 0 ? static_cast<size_t>(rows_per_pass) : 256;
  }
  // One gradient per group, added in a fixed tree: the same bits for every number of ranks. Costs
  // smaller batches, and in host memory and on the wire a few gradients (parallel/ordered_sum.h).
  bool deterministic = false;
  // With several ranks: learner steps between comparisons of their weights; 0: never.
  int drift_check_every = 50;
  // With several ranks: each keeps the optimiser's moments of its own piece of the weights.
  bool shard_optimizer = false;
  bool shard_gradients = false;  // Where ranks shard the optimiser; see rank_training.h.
  MomentPlace moments = MomentPlace::kWithWeights;

  MethodKind method = MethodKind::kGrpo;
  MethodSettings settings;
  double clip_range = 1e-4;
  double clip_range_high = 0;  // For ratios above 1; 0: the same.

  AdvantageOptions advantage;
  RewardMix reward_mix = RewardMix::kSum;
  std::map<std::string, double> reward_weights;  // By name; kSum does not read it.
  double diversity_weight = 0;   // R (1 + weight (1 - duplicate share)) is what advantages are of.
  bool stored_rewards = false;   // Replayed samples count their stored reward, not the new score.
  bool replayed_in_mean = true;  // Whether their rewards count in the mean of their group.
  double full_reward = 1;        // Added successes count in shares of it.
  ZeroVariance zero_variance = ZeroVariance::kMeanOverAll;

  KlOptions kl;
  CopyOptions copies;

  // Policy gradients.
  Correction correction = Correction::kSequence;
  // The clip's centre of on-policy rows: the worker's log-prob, or the trainer's own before its
  // first update, which no difference between devices reaches.
  bool recompute_on_policy = false;
  // Error of on-policy ratios, worker against trainer, beyond which something is wrong.
  double onpolicy_ratio_limit = 1e-4;
  double weight_cap = 2;  // Upper limit of W; see loss_weight.h.
  int kept_steps = 0;     // i_off of stale fresh trajectories; 0: the steps with kc < kept_kc_max.
  double kept_kc_max = 0.3;
  double step_fraction = 1;  // Share of the stochastic steps that a sample trains, drawn at random.
  StepWeight step_weight = StepWeight::kNone;
  BranchOptions branch;  // Where sampling.splits makes trees of a group.

  // Forward-process methods.
  TimeOptions times;
  double old_kl_weight = 0;  // AWM: towards the running old policy. V-GRPO: towards pi_old.
  AnchorOptions anchor;

  AdamWOptions adamw;
  RateSchedule rate_schedule;
  double grad_norm_max = 1;

  bool ema_enabled = true;
  double ema_decay_max = 0.9;

  // A pass over the replayed samples alone is one update.
  int ExtraPasses() const { return std::max(0, replay_passes - passes); }
  // At most: a step without a replayed sample has no extra pass. Versions count so many per step.
  int UpdatesPerStep() const { return updates * passes + ExtraPasses(); }
  ClipRange clip() const {
    return {.low = clip_range, .high = clip_range_high > 0 ? clip_range_high : clip_range};
  }
};

}  // namespace oxbow::rl
