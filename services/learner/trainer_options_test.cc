// Every setting of a config arrives in the trainer's options.
#include "services/learner/trainer_options.h"

#include <gtest/gtest.h>

namespace oxbow::learner {
namespace {

// No value is the trainer's default, and no two settings of a type share one.
v1::RunConfig Config() {
  v1::RunConfig config;
  config.mutable_run()->set_seed(101);
  config.mutable_batch()->set_updates(3);
  config.mutable_sampling()->set_cps_log_prob(v1::CPS_LOG_PROB_GAUSSIAN);
  v1::MethodConfig& method = *config.mutable_method();
  method.set_clip_range(0.11);
  method.set_advantage_clip(6.5);
  method.set_advantage_std(v1::ADVANTAGE_STD_NONE);
  method.set_zero_variance(v1::ZERO_VARIANCE_MEAN_OVER_KEPT);
  method.set_correction(v1::CORRECTION_NAIVE);
  method.set_weight_scale(v1::WEIGHT_SCALE_SUM);
  method.set_weight_geometric(true);
  method.set_weight_cap(2.5);
  method.set_weight_floor(0.05);
  method.set_weight_log_clamp(21);
  method.set_kept_steps(4);
  method.set_kept_kc_max(0.35);
  method.set_kl_weight(0.012);
  method.set_kl_space(v1::KL_SPACE_MEAN);
  method.set_kl_all_steps(true);
  v1::OptimizerConfig& optimizer = *config.mutable_optimizer();
  optimizer.set_learning_rate(0.013);
  optimizer.set_beta1(0.81);
  optimizer.set_beta2(0.982);
  optimizer.set_epsilon(1.5e-7);
  optimizer.set_weight_decay(0.017);
  optimizer.set_grad_norm_max(1.25);
  optimizer.set_warmup_updates(9);
  config.mutable_ema()->set_decay_max(0.77);
  return config;
}

TEST(TrainerOptionsTest, EverySettingArrives) {
  flow::SamplingSpec sampling;
  sampling.sigmas = {1, 0.5, 0};
  sampling.sde = {true, false};
  const flow::WindowPlan window{.kind = flow::WindowKind::kAll, .end = 1};
  const rl::TrainerOptions options = MakeTrainerOptions(Config(), sampling, window);
  EXPECT_EQ(options.window->end, 1);
  EXPECT_FALSE(options.cps_surrogate);
  EXPECT_EQ(options.sampling.Id(), sampling.Id());
  EXPECT_EQ(options.run_seed, 101u);
  EXPECT_EQ(options.updates, 3);
  EXPECT_EQ(options.clip_range, 0.11);
  EXPECT_EQ(options.advantage_clip, 6.5);
  EXPECT_EQ(options.advantage_std, rl::AdvantageStd::kNone);
  EXPECT_EQ(options.zero_variance, rl::ZeroVariance::kMeanOverKept);
  EXPECT_EQ(options.correction, rl::Correction::kNaive);
  EXPECT_EQ(options.weight_scale, rl::WeightScale::kSum);
  EXPECT_TRUE(options.weight_geometric);
  EXPECT_EQ(options.weight_cap, 2.5);
  EXPECT_EQ(options.weight_floor, 0.05);
  EXPECT_EQ(options.weight_log_clamp, 21);
  EXPECT_EQ(options.kept_steps, 4);
  EXPECT_EQ(options.kept_kc_max, 0.35);
  EXPECT_EQ(options.kl_weight, 0.012);
  EXPECT_EQ(options.kl_space, rl::KlSpace::kMean);
  EXPECT_TRUE(options.kl_all_steps);
  EXPECT_EQ(options.learning_rate, 0.013);
  EXPECT_EQ(options.beta1, 0.81);
  EXPECT_EQ(options.beta2, 0.982);
  EXPECT_EQ(options.epsilon, 1.5e-7);
  EXPECT_EQ(options.weight_decay, 0.017);
  EXPECT_EQ(options.grad_norm_max, 1.25);
  EXPECT_EQ(options.warmup_updates, 9);
  EXPECT_FALSE(options.ema_enabled);
  EXPECT_EQ(options.ema_decay_max, 0.77);
}

}  // namespace
}  // namespace oxbow::learner
