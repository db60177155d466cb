// SPDX-License-Identifier: Apache-2.0
#include "run/trainer_options.h"

#include <algorithm>

#include "base/check.h"
#include "config/chosen_method.h"
#include "config/memory_parts.h"
#include "run/kept_steps.h"
#include "run/rewards.h"

namespace oxbow::run {
namespace {

// Config enums count from 1 in the order of the trainer's enums, which count from 0.
template <typename Domain, typename Wire>
Domain FromWire(Wire value) {
  OXBOW_CHECK(static_cast<int>(value) > 0) << "config is resolved";
  return static_cast<Domain>(static_cast<int>(value) - 1);
}

static_assert(static_cast<int>(rl::AdvantageStd::kNone) == v1::ADVANTAGE_STD_NONE - 1);
static_assert(static_cast<int>(rl::ZeroVariance::kUnmasked) == v1::ZERO_VARIANCE_UNMASKED - 1);
static_assert(static_cast<int>(rl::Correction::kBehaviourClip) ==
              v1::CORRECTION_BEHAVIOUR_CLIP - 1);
static_assert(static_cast<int>(rl::AdvantageDivisor::kRoot) == v1::ADVANTAGE_DIVISOR_ROOT - 1);
static_assert(static_cast<int>(rl::RewardMix::kGdpo) == v1::REWARD_MIX_GDPO - 1);
static_assert(static_cast<int>(rl::StepWeight::kSensitivity) == v1::STEP_WEIGHT_SENSITIVITY - 1);
static_assert(static_cast<int>(rl::TimeSampler::kLogitNormal) == v1::TIME_SAMPLER_LOGIT_NORMAL - 1);
static_assert(static_cast<int>(rl::Sharing::kStep) == v1::SHARING_STEP - 1);
static_assert(static_cast<int>(rl::DecayShape::kPiecewiseLinear) ==
              v1::DECAY_SHAPE_PIECEWISE_LINEAR - 1);
static_assert(static_cast<int>(rl::RateShape::kCosine) == v1::RATE_SHAPE_COSINE - 1);
static_assert(static_cast<int>(rl::BranchFusion::kSoftmax) == v1::BRANCH_FUSION_SOFTMAX - 1);
static_assert(static_cast<int>(rl::BranchPruning::kExtremes) == v1::BRANCH_PRUNING_EXTREMES - 1);
static_assert(static_cast<int>(rl::KlSpace::kTransition) == v1::KL_SPACE_TRANSITION - 1);

void SetAdvantages(const v1::RunConfig& config, rl::TrainerOptions& options) {
  const v1::MethodConfig& method = config.method();
  options.advantage = {.std = FromWire<rl::AdvantageStd>(method.advantage_std()),
                       .ddof = static_cast<int>(method.advantage_ddof()),
                       .divisor = FromWire<rl::AdvantageDivisor>(method.advantage_divisor()),
                       .epsilon = method.advantage_epsilon(),
                       .clip = method.advantage_clip()};
  options.reward_mix = FromWire<rl::RewardMix>(method.reward_mix());
  for (const v1::RewardTerm& term : config.reward().terms()) {
    options.reward_weights[term.name()] = term.weight();
  }
  options.diversity_weight = method.diversity().weight();
  options.stored_rewards = config.replay().reward() == v1::REPLAY_REWARD_STORED;
  options.full_reward = WholeOf(config.reward());
  options.replayed_in_mean = config.replay().in_mean();
  options.zero_variance = FromWire<rl::ZeroVariance>(method.zero_variance());
}

void SetPolicyGradient(const v1::MethodConfig& method, rl::TrainerOptions& options) {
  options.correction = FromWire<rl::Correction>(method.correction());
  options.weight_cap = method.weight_cap();
  options.kept_kc_max = method.kept_kc_max();
  options.step_fraction = method.step_fraction();
  options.step_weight = FromWire<rl::StepWeight>(method.step_weight());
  const v1::BranchConfig& branch = method.branch();
  options.branch = {.fusion = FromWire<rl::BranchFusion>(branch.fusion()),
                    .pruning = FromWire<rl::BranchPruning>(branch.pruning()),
                    .kept = branch.kept(),
                    .pruned_steps = {branch.pruned_steps().begin(), branch.pruned_steps().end()},
                    .pruned_hold = static_cast<int>(branch.pruned_hold())};
}

void SetForwardProcess(const v1::MethodConfig& method, rl::TrainerOptions& options) {
  const v1::TimesConfig& times = method.times();
  options.times = {.sampler = FromWire<rl::TimeSampler>(times.sampler()),
                   .count = static_cast<int>(times.count()),
                   .fraction = times.fraction(),
                   .low = times.low(),
                   .high = times.high(),
                   .shift = times.shift(),
                   .times = FromWire<rl::Sharing>(times.times()),
                   .noise = FromWire<rl::Sharing>(times.noise())};
  options.old_kl_weight = method.old_kl_weight();
  options.anchor = {.weight = method.anchor().weight(), .high = method.anchor().high()};
}

rl::CopyOptions CopiesOf(const v1::RunConfig& config) {
  const v1::OldPolicyConfig& old = config.method().old_policy();
  return {.old = {.shape = FromWire<rl::DecayShape>(old.shape()),
                  .decay = old.decay(),
                  .rate = old.rate(),
                  .flat = old.flat(),
                  .warmup = old.warmup()},
          .reference_every = static_cast<int>(config.method().reference_every()),
          .reference_at = MovesReference(config) ? config.replay().reincarnate_after() : 0};
}

void SetOptimizer(const v1::RunConfig& config, rl::TrainerOptions& options) {
  const v1::OptimizerConfig& optimizer = config.optimizer();
  options.adamw = {.learning_rate = optimizer.learning_rate(),
                   .beta1 = optimizer.beta1(),
                   .beta2 = optimizer.beta2(),
                   .epsilon = optimizer.epsilon(),
                   .weight_decay = optimizer.weight_decay(),
                   .warmup_updates = static_cast<int>(optimizer.warmup_updates())};
  options.rate_schedule = {
      .shape = FromWire<rl::RateShape>(optimizer.decay()),
      .steps = optimizer.decay_steps() > 0 ? optimizer.decay_steps() : config.run().steps(),
      .to = optimizer.decay_to()};
  options.grad_norm_max = optimizer.grad_norm_max();
  options.ema_enabled = config.ema().enabled();
  options.ema_decay_max = config.ema().decay_max();
}

}  // namespace

rl::TrainerOptions MakeTrainerOptions(const v1::RunConfig& config,
                                      const flow::SamplingSpec& sampling,
                                      const std::optional<flow::WindowPlan>& window) {
  const v1::MethodConfig& method = config.method();
  rl::TrainerOptions options;
  options.sampling = sampling;
  options.window = window;
  options.run_seed = config.run().seed();
  options.deterministic = config.run().deterministic();
  const config::MemoryParts memory = config::MemoryOf(config.model());
  options.shard_optimizer =
      !memory.whole_optimizer && config.model().trained() == v1::TRAINED_PART_FULL;
  options.shard_gradients = options.shard_optimizer && memory.shard_gradients;
  options.moments =
      memory.offload_optimizer ? rl::MomentPlace::kHost : rl::MomentPlace::kWithWeights;
  options.updates = static_cast<int>(config.batch().updates());
  options.passes = static_cast<int>(config.batch().passes());
  if (config::KeepsSuccesses(config)) {
    options.replay_passes = static_cast<int>(config.replay().passes());
  }
  options.reincarnate_after = config.replay().reincarnate_after();
  options.rows_per_pass = static_cast<int>(config.batch().rows_per_pass());
  options.method = config::KindOf(method);
  options.settings.values = config::OwnSettings(method);
  options.clip_range = method.clip_range();
  options.clip_range_high = method.clip_range_high();
  options.kept_steps = KeptStepsOf(config, sampling);
  options.recompute_on_policy = RecomputesOldLogProbs(config);
  options.onpolicy_ratio_limit = OnPolicyRatioLimit(config);
  options.kl = {.weight = method.kl_weight(),
                .space = FromWire<rl::KlSpace>(method.kl_space()),
                .all_steps = method.kl_all_steps(),
                .precedent = method.kl_precedent()};
  options.copies = CopiesOf(config);
  SetAdvantages(config, options);
  SetPolicyGradient(method, options);
  SetForwardProcess(method, options);
  SetOptimizer(config, options);
  return options;
}

namespace {

// How far a log-prob of a worker may be from the learner's own, in ratios: 0 where both have the
// same bits. Estimates: of float32 the upper end of what products of other shapes give, of bfloat16
// ten times as much.
double RatioRounding(const v1::ModelConfig& model) {
  if (model.compute_dtype() != v1::STORAGE_D_TYPE_F32) return 1e-4;
  const bool merged = model.trained() == v1::TRAINED_PART_LORA && model.lora().merge_for_rollouts();
  return model.device() == "cpu" && !merged ? 0 : 1e-5;
}

double SmallerClipRange(const v1::MethodConfig& method) {
  const double high = method.clip_range_high();
  return high > 0 ? std::min(high, method.clip_range()) : method.clip_range();
}

constexpr double kRoundingsInRange = 10;  // A clip range above so many does not feel rounding.
constexpr double kUnclippedLimit = 1e-4;
constexpr double kRatioErrorMax = 1e-3;  // More than that is another model, whatever the clip.

}  // namespace

bool RecomputesOldLogProbs(const v1::RunConfig& config) {
  const v1::MethodConfig& method = config.method();
  if (!config::ChosenMethod(method).needs_density()) return false;
  if (method.old_log_prob() != v1::OLD_LOG_PROB_AUTO) {
    return method.old_log_prob() == v1::OLD_LOG_PROB_RECOMPUTE;
  }
  const bool clips = config::ChosenMethod(method).ratio == rl::RatioUse::kClipped;
  return clips && SmallerClipRange(method) <= kRoundingsInRange * RatioRounding(config.model());
}

double OnPolicyRatioLimit(const v1::RunConfig& config) {
  if (config::ChosenMethod(config.method()).ratio != rl::RatioUse::kClipped) return kUnclippedLimit;
  const double range = std::min(kRatioErrorMax, SmallerClipRange(config.method()) / 2);
  if (!RecomputesOldLogProbs(config)) return range;
  return std::max(range, kRoundingsInRange * RatioRounding(config.model()));
}

bool ReadsReference(const v1::MethodConfig& method) {
  const bool kl = method.kl_weight() > 0 && method.kl_precedent() < 1;
  return kl || method.anchor().weight() > 0;
}

bool MovesReference(const v1::RunConfig& config) {
  if (config.method().reference_every() > 0) return true;
  return config.replay().reincarnate_after() > 0 && ReadsReference(config.method());
}

model::OldPolicy OldPolicyOf(const v1::MethodConfig& method) {
  switch (config::ChosenMethod(method).old_copy) {
    case rl::OldCopy::kNever:
      return model::OldPolicy::kNone;
    case rl::OldCopy::kForItsPull:
      return method.old_kl_weight() > 0 ? model::OldPolicy::kKept : model::OldPolicy::kNone;
    case rl::OldCopy::kSamples:
      return model::OldPolicy::kSamples;
  }
  OXBOW_CHECK(false) << "old copy of method " << method.name();
}

}  // namespace oxbow::run
