// Every setting of a trainer. Plain data; the defaults are Flow-GRPO's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/flow/dynamics.h"
#include "core/flow/window.h"
#include "core/rl/advantage.h"
#include "core/rl/anchor.h"
#include "core/rl/awm.h"
#include "core/rl/clip_range.h"
#include "core/rl/correction.h"
#include "core/rl/decay_schedule.h"
#include "core/rl/kl.h"
#include "core/rl/nft.h"
#include "core/rl/rate_schedule.h"
#include "core/rl/step_weight.h"
#include "core/rl/training_times.h"

namespace oxbow::rl {

// What a row's loss is. The first three are policy gradients: functions of the log-probs of sampled
// transitions. The others noise the final picture again and know nothing of how it was drawn.
enum class MethodKind { kGrpo, kGuard, kDppo, kNft, kAwm, kVGrpo };

constexpr bool IsForwardProcess(MethodKind kind) { return kind >= MethodKind::kNft; }

// What happens to groups without variance. Masked samples train nothing, not even the KL; the loss
// is divided by B T_train with B all samples, or those of groups with variance only. Kept ones
// train with advantage 0.
enum class ZeroVariance { kMeanOverAll, kMeanOverKept, kUnmasked };

struct TrainerOptions {
  flow::SamplingSpec sampling;  // Its sde flags are the trained steps (the last step never is).
  std::optional<flow::WindowPlan> window;  // Which of them are, by learner step; none: all.
  bool cps_surrogate = true;  // Ratios of cps steps on the published scale; see dynamics.h.
  uint64_t run_seed = 0;
  int updates = 2;  // Per pass.
  int passes = 1;   // Over the samples of a learner step.
  // Of one backward pass, whole samples and at least one; 0: all of an update. Not with
  // guard_batch_bias, whose loss wants whole groups.
  int rows_per_pass = 0;
  // Of one forward pass without gradients.
  size_t RowsPerForward() const {
    return rows_per_pass > 0 ? static_cast<size_t>(rows_per_pass) : 256;
  }
  // One gradient per group, added in the order of groups: the same bits for every number of ranks.
  // Costs smaller batches, and a gradient per group on the wire.
  bool deterministic = false;
  // With several ranks: learner steps between comparisons of their weights; 0: never.
  int agreement_every = 0;
  // With several ranks: each keeps the optimiser's moments of its own piece of the weights.
  bool shard_optimizer = false;

  MethodKind method = MethodKind::kGrpo;
  double clip_range = 1e-4;
  double clip_range_high = 0;  // Of ratios above 1; 0: the same.
  double advantage_clip = 5;
  AdvantageStd advantage_std = AdvantageStd::kGroup;
  int advantage_ddof = 0;
  AdvantageDivisor advantage_divisor = AdvantageDivisor::kPlusEpsilon;
  double advantage_epsilon = 1e-4;
  AdvantageLimit advantage_limit = AdvantageLimit::kHard;
  RewardMix reward_mix = RewardMix::kSum;
  std::map<std::string, double> reward_weights;  // By name; kSum does not read it.
  double diversity_weight = 0;   // R (1 + weight (1 - niche share)) is what advantages are of.
  bool stored_rewards = false;   // Of replayed samples, in place of what their new pictures score.
  bool replayed_in_mean = true;  // Whether their rewards count in the mean of their group.
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
  int reference_every = 0;  // Learner steps after which the reference becomes the policy; 0: never.

  // Policy gradients.
  double step_fraction = 1;  // Of the stochastic steps, trained per sample; drawn at random.
  StepWeight step_weight = StepWeight::kNone;
  bool guard_batch_bias = false;  // b averaged over the group's samples at a step.
  bool guard_time_weight = true;  // Divide a row's loss by its time step.

  // Forward-process methods.
  TimeOptions times;
  NftOptions nft;
  AwmOptions awm;
  bool v_grpo_sum_norms = false;  // |x|^2 / (|x|_1 / D) as printed, instead of mean over mean.
  double old_kl_weight = 0;       // AWM: towards the running old policy. V-GRPO: towards pi_old.
  DecayOptions old_decay;         // How the old policy follows; only where the policy keeps one.

  AnchorOptions anchor;  // Weight above 0 requires pictures: a forward-process method.

  double learning_rate = 3e-4;
  RateSchedule rate_schedule;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-4;
  double grad_norm_max = 1;
  int warmup_updates = 0;

  bool ema_enabled = true;
  double ema_decay_max = 0.9;

  int UpdatesPerStep() const { return updates * passes; }
  ClipRange clip() const {
    return {.low = clip_range, .high = clip_range_high > 0 ? clip_range_high : clip_range};
  }
};

// Whether rows have a ratio to the policy before the step, which is clipped.
inline bool HasRatio(const TrainerOptions& options) {
  if (options.method == MethodKind::kAwm) return options.awm.ratio;
  return options.method != MethodKind::kNft;
}

}  // namespace oxbow::rl
