#include "services/learner/trainer_options.h"

#include "base/check.h"
#include "core/flow/truncation.h"

namespace oxbow::learner {
namespace {

// Config enums count from 1 in the order of the trainer's enums, which count from 0.
template <typename Domain, typename Wire>
Domain FromWire(Wire value) {
  OXBOW_CHECK(static_cast<int>(value) > 0) << "config is resolved";
  return static_cast<Domain>(static_cast<int>(value) - 1);
}

static_assert(static_cast<int>(rl::AdvantageStd::kNone) == v1::ADVANTAGE_STD_NONE - 1);
static_assert(static_cast<int>(rl::ZeroVariance::kMeanOverKept) ==
              v1::ZERO_VARIANCE_MEAN_OVER_KEPT - 1);
static_assert(static_cast<int>(rl::Correction::kBypass) == v1::CORRECTION_BYPASS - 1);
static_assert(static_cast<int>(rl::Correction::kNaive) == v1::CORRECTION_NAIVE - 1);
static_assert(static_cast<int>(rl::WeightScale::kSqrt) == v1::WEIGHT_SCALE_SQRT - 1);
static_assert(static_cast<int>(rl::KlSpace::kMean) == v1::KL_SPACE_MEAN - 1);

}  // namespace

rl::TrainerOptions MakeTrainerOptions(const v1::RunConfig& config,
                                      const flow::SamplingSpec& sampling,
                                      const std::optional<flow::WindowPlan>& window) {
  const v1::MethodConfig& method = config.method();
  const v1::OptimizerConfig& optimizer = config.optimizer();
  rl::TrainerOptions options;
  options.sampling = sampling;
  options.window = window;
  options.cps_surrogate = config.sampling().cps_log_prob() == v1::CPS_LOG_PROB_SURROGATE;
  options.run_seed = config.run().seed();
  options.deterministic = config.run().deterministic();
  options.agreement_every = static_cast<int>(config.learner().drift_check_every());
  options.shard_optimizer =
      config.learner().shard_optimizer() && config.model().trained() == v1::TRAINED_PART_FULL;
  options.updates = static_cast<int>(config.batch().updates());
  options.kept_steps = KeptStepsOf(config, sampling);
  options.kept_kc_max = method.kept_kc_max();
  options.clip_range = method.clip_range();
  options.advantage_clip = method.advantage_clip();
  options.advantage_std = FromWire<rl::AdvantageStd>(method.advantage_std());
  options.zero_variance = FromWire<rl::ZeroVariance>(method.zero_variance());
  options.correction = FromWire<rl::Correction>(method.correction());
  options.weight_scale = FromWire<rl::WeightScale>(method.weight_scale());
  options.weight_geometric = method.weight_geometric();
  options.weight_cap = method.weight_cap();
  options.weight_floor = method.weight_floor();
  options.weight_log_clamp = method.weight_log_clamp();
  options.kl_weight = method.kl_weight();
  options.kl_space = FromWire<rl::KlSpace>(method.kl_space());
  options.kl_all_steps = method.kl_all_steps();
  options.learning_rate = optimizer.learning_rate();
  options.beta1 = optimizer.beta1();
  options.beta2 = optimizer.beta2();
  options.epsilon = optimizer.epsilon();
  options.weight_decay = optimizer.weight_decay();
  options.grad_norm_max = optimizer.grad_norm_max();
  options.warmup_updates = static_cast<int>(optimizer.warmup_updates());
  options.ema_enabled = config.ema().enabled();
  options.ema_decay_max = config.ema().decay_max();
  return options;
}

int KeptStepsOf(const v1::RunConfig& config, const flow::SamplingSpec& sampling) {
  const int configured = static_cast<int>(config.method().kept_steps());
  return configured > 0 ? configured : flow::KeptSteps(sampling, config.method().kept_kc_max());
}

}  // namespace oxbow::learner
