// SPDX-License-Identifier: Apache-2.0
#include "run/trainer_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "config/chosen_method.h"
#include "config/memory_parts.h"
#include "config/rules.h"
#include "core/flow/sampler.h"
#include "run/rewards.h"

namespace oxbow::run {

namespace {

// Whether a step may train samples that older weights made, which a correction cuts at i_off.
bool TrainsStaleSamples(const v1::RunConfig& config) {
  if (config.adaptation().enabled() && config.adaptation().recent_steps() > 0) return true;
  return config.off_policy().staleness_max() > 0 &&
         config.method().correction() != v1::CORRECTION_BYPASS;
}

// Stochastic steps before `end`.
int64_t StochasticBefore(const flow::SamplingSpec& sampling, int end) {
  return std::count(sampling.sde.begin(), sampling.sde.begin() + end, true);
}

std::string WhatReuses(bool replays) {
  return replays ? "replayed heads would be empty" : "samples of older weights would train nothing";
}

// Config enums count from 1 in the order of the trainer's enums, which count from 0. Both end with
// `kLast` and `kWireLast`.
template <auto kLast, auto kWireLast>
decltype(kLast) FromWire(decltype(kWireLast) value) {
  static_assert(static_cast<int>(kLast) == static_cast<int>(kWireLast) - 1);
  OXBOW_CHECK(static_cast<int>(value) > 0) << "config is resolved";
  return static_cast<decltype(kLast)>(static_cast<int>(value) - 1);
}

void SetAdvantages(const v1::RunConfig& config, rl::TrainerOptions& options) {
  const v1::MethodConfig& method = config.method();
  options.advantage = {
      .std = FromWire<rl::AdvantageStd::kNone, v1::ADVANTAGE_STD_NONE>(method.advantage_std()),
      .ddof = static_cast<int>(method.advantage_ddof()),
      .divisor = FromWire<rl::AdvantageDivisor::kSoftFloor, v1::ADVANTAGE_DIVISOR_SOFT_FLOOR>(
          method.advantage_divisor()),
      .epsilon = method.advantage_epsilon(),
      .clip = method.advantage_clip()};
  options.reward_mix = FromWire<rl::RewardMix::kGdpo, v1::REWARD_MIX_GDPO>(method.reward_mix());
  for (const v1::RewardTerm& term : config.reward().terms()) {
    options.reward_weights[term.name()] = term.weight();
  }
  options.diversity_weight = method.diversity().weight();
  options.stored_rewards = config.replay().reward() == v1::REPLAY_REWARD_STORED;
  options.full_reward = WholeOf(config.reward());
  options.replayed_in_mean = config.replay().in_mean();
  options.zero_variance =
      FromWire<rl::ZeroVariance::kUnmasked, v1::ZERO_VARIANCE_UNMASKED>(method.zero_variance());
}

void SetPolicyGradient(const v1::MethodConfig& method, rl::TrainerOptions& options) {
  options.correction =
      FromWire<rl::Correction::kBehaviourClip, v1::CORRECTION_BEHAVIOUR_CLIP>(method.correction());
  options.weight_cap = method.weight_cap();
  options.kept_kc_max = method.kept_kc_max();
  options.step_fraction = method.step_fraction();
  options.step_weight =
      FromWire<rl::StepWeight::kSensitivity, v1::STEP_WEIGHT_SENSITIVITY>(method.step_weight());
  const v1::BranchConfig& branch = method.branch();
  options.branch = {
      .fusion = FromWire<rl::BranchFusion::kSoftmax, v1::BRANCH_FUSION_SOFTMAX>(branch.fusion()),
      .pruning =
          FromWire<rl::BranchPruning::kExtremes, v1::BRANCH_PRUNING_EXTREMES>(branch.pruning()),
      .kept = branch.kept(),
      .pruned_steps = {branch.pruned_steps().begin(), branch.pruned_steps().end()},
      .pruned_hold = static_cast<int>(branch.pruned_hold())};
}

void SetForwardProcess(const v1::MethodConfig& method, rl::TrainerOptions& options) {
  const v1::TimesConfig& times = method.times();
  options.times = {
      .sampler = FromWire<rl::TimeSampler::kWithInit, v1::TIME_SAMPLER_DISCRETE_WITH_INIT>(
          times.sampler()),
      .count = static_cast<int>(times.count()),
      .fraction = times.fraction(),
      .low = times.low(),
      .high = times.high(),
      .shift = times.shift(),
      .times = FromWire<rl::Sharing::kStep, v1::SHARING_STEP>(times.times()),
      .noise = FromWire<rl::Sharing::kStep, v1::SHARING_STEP>(times.noise())};
  options.old_kl_weight = method.old_kl_weight();
  options.anchor = {.weight = method.anchor().weight(), .high = method.anchor().high()};
}

rl::CopyOptions CopiesOf(const v1::RunConfig& config) {
  const v1::OldPolicyConfig& old = config.method().old_policy();
  return {
      .old = {.shape = FromWire<rl::DecayShape::kPiecewiseLinear, v1::DECAY_SHAPE_PIECEWISE_LINEAR>(
                  old.shape()),
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
      .shape = FromWire<rl::RateShape::kCosine, v1::RATE_SHAPE_COSINE>(optimizer.decay()),
      .steps = optimizer.decay_steps() > 0 ? optimizer.decay_steps() : config.run().steps(),
      .to = optimizer.decay_to()};
  options.grad_norm_max = optimizer.grad_norm_max();
  options.ema_enabled = config.ema().enabled();
  options.ema_decay_max = config.ema().decay_max();
}

}  // namespace

absl::StatusOr<at::ScalarType> StorageFromConfig(const v1::SamplingConfig& config) {
  return ScalarTypeFromConfig(config.storage(), "sampling.storage");
}

absl::StatusOr<at::ScalarType> ScalarTypeFromConfig(v1::StorageDType dtype, const char* key) {
  switch (dtype) {
    case v1::STORAGE_D_TYPE_F32:
      return at::kFloat;
    case v1::STORAGE_D_TYPE_F16:
      return at::kHalf;
    case v1::STORAGE_D_TYPE_BF16:
      return at::kBFloat16;
    default:
      return absl::InvalidArgumentError(absl::StrCat(key, " is not set"));
  }
}

model::BaseWeights BaseWeightsOf(const v1::ModelConfig& config) {
  return config::MemoryOf(config).int8 ? model::BaseWeights::kInt8 : model::BaseWeights::kCompute;
}

at::ScalarType EncoderType(const v1::ModelConfig& config) {
  return config.encoder_dtype() == v1::STORAGE_D_TYPE_BF16 ? at::kBFloat16 : at::kFloat;
}

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
                .space = FromWire<rl::KlSpace::kLatent, v1::KL_SPACE_LATENT>(method.kl_space()),
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

bool SharesWeights(const v1::RunConfig& config) {
  const config::MemoryParts memory = config::MemoryOf(config.model());
  return config.model().trained() == v1::TRAINED_PART_FULL && config.learner().ranks() > 1 &&
         memory.offload_weights && memory.shard_gradients && !memory.whole_optimizer;
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
      if (method.sample_from() == v1::SAMPLE_FROM_OLD) return model::OldPolicy::kSamples;
      return method.old_kl_weight() > 0 ? model::OldPolicy::kKept : model::OldPolicy::kNone;
    case rl::OldCopy::kSamples:
      return model::OldPolicy::kSamples;
  }
  OXBOW_CHECK(false) << "old copy of method " << method.name();
}

int KeptStepsOf(const v1::RunConfig& config, const flow::SamplingSpec& sampling) {
  // A method of final latents replays finished images.
  if (!config::ChosenMethod(config.method()).needs_density()) return sampling.steps();
  const int configured = static_cast<int>(config.method().kept_steps());
  return configured > 0 ? configured : flow::KeptSteps(sampling, config.method().kept_kc_max());
}

std::vector<config::Problem> CheckKeptSteps(const v1::RunConfig& config,
                                            const flow::SamplingSpec& sampling) {
  const bool replays = config::KeepsSuccesses(config);
  const bool stale = TrainsStaleSamples(config);
  if (!config::ChosenMethod(config.method()).needs_density() || !(replays || stale)) return {};
  const int64_t all = StochasticBefore(sampling, sampling.steps());
  if (all == 0) return {};  // Another rule reports it.
  const int kept = std::min(KeptStepsOf(config, sampling), sampling.steps());
  const int64_t left = StochasticBefore(sampling, kept);
  if (left == 0) {
    const auto first = std::find(sampling.sde.begin(), sampling.sde.end(), true);
    const auto step = static_cast<int>(first - sampling.sde.begin());
    const double kc = flow::KernelSensitivity(flow::KernelAt(sampling, step));
    return {{config::Severity::kError, "method.kept_kc_max",
             absl::StrCat("keeps no step (i_off = 0): the first stochastic step has kc ", kc,
                          ", so ", WhatReuses(replays), "; raise it above ", kc,
                          ", or set replay.fraction and off_policy.staleness_max to 0, got ",
                          config.method().kept_kc_max())}};
  }
  config::Findings f;
  if (stale && left < all) {
    f.Warn("method.kept_kc_max",
           absl::StrCat("samples of older weights train ", left, " of ", all,
                        " steps, those before i_off = ", kept,
                        "; to train all raise it, or set method.correction to bypass"));
  }
  if (replays && left < all && config.sampling().tail() == v1::TAIL_KIND_STORED &&
      !config::WindowMoves(config.sampling())) {
    f.Warn("sampling.tail",
           absl::StrCat("stored has no effect: heads end at i_off = ", kept,
                        ", before the last stochastic step, so their tails are made "
                        "again as by ode; end the window there"));
  }
  if (config.replay().fraction() > 0 && config.replay().branches() > 1 && left == all) {
    f.Error("replay.branches",
            absl::StrCat("would all be the same image: the stored head keeps every stochastic step "
                         "(i_off = ",
                         kept, "); set method.kept_steps below that, or 1, got ",
                         config.replay().branches()));
  }
  const uint64_t reach = config::ReachOf(config.sampling()).end;
  if (config.method().kept_steps() == 0 && config::WindowMoves(config.sampling()) &&
      static_cast<uint64_t>(kept) + config.sampling().window().size() <= reach) {
    f.Warn("method.kept_kc_max",
           absl::StrCat("windows that begin at step i_off = ", kept,
                        " or later give the replay buffer nothing, and samples of older weights "
                        "nothing to train; end them there: sde_first + sde_count = ",
                        kept));
  }
  return std::move(f.problems);
}

}  // namespace oxbow::run
