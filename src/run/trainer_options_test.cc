// SPDX-License-Identifier: Apache-2.0
// Every setting of a config arrives in the trainer's options.
#include "run/trainer_options.h"

#include <gtest/gtest.h>

#include "config/chosen_method.h"
#include "config/run_config.h"
#include "core/parallel/ranks.h"
#include "core/rl/awm.h"
#include "core/rl/method.h"
#include "core/rl/v_grpo.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::run {
namespace {

// Choices of a method's own section count from 0 in the order of its class's enum.
static_assert(static_cast<int>(rl::AwmWeighting::kGeneralHuber) ==
              v1::AWM_WEIGHTING_GENERAL_HUBER - 1);

void SetForwardProcess(v1::MethodConfig& method) {
  method.mutable_nft()->set_beta(0.12);
  method.mutable_awm()->set_weighting(v1::AWM_WEIGHTING_SQUARE);
  method.mutable_v_grpo()->set_prediction(v1::V_GRPO_PREDICTION_VELOCITY);
  method.mutable_v_grpo()->set_weight(v1::V_GRPO_WEIGHT_BOUND);
  v1::TimesConfig& times = *method.mutable_times();
  times.set_sampler(v1::TIME_SAMPLER_UNIFORM);
  times.set_count(7);
  times.set_fraction(0.83);
  times.set_shift(2.75);
  times.set_low(0.33);
  times.set_high(0.94);
  times.set_times(v1::SHARING_GROUP);
  times.set_noise(v1::SHARING_STEP);
  v1::OldPolicyConfig& old = *method.mutable_old_policy();
  old.set_shape(v1::DECAY_SHAPE_LINEAR);
  old.set_decay(0.71);
  old.set_rate(0.0041);
  old.set_flat(74);
  old.set_warmup(13);
}

// No value is the trainer's default, and no two settings of a type share one.
v1::RunConfig Config() {
  v1::RunConfig config;
  config.mutable_run()->set_seed(101);
  config.mutable_batch()->set_updates(3);
  config.mutable_batch()->set_passes(5);
  v1::MethodConfig& method = *config.mutable_method();
  method.set_clip_range(0.11);
  method.set_clip_range_high(0.12);
  method.set_advantage_clip(6.5);
  method.set_advantage_std(v1::ADVANTAGE_STD_NONE);
  method.set_zero_variance(v1::ZERO_VARIANCE_MEAN_OVER_KEPT);
  method.set_correction(v1::CORRECTION_NAIVE);
  method.set_weight_cap(2.5);
  method.set_kept_steps(4);
  method.set_kept_kc_max(0.35);
  method.set_kl_weight(0.012);
  method.set_kl_space(v1::KL_SPACE_MEAN);
  method.set_kl_all_steps(true);
  method.set_kl_precedent(0.37);
  config.mutable_replay()->set_fraction(0.25);
  config.mutable_replay()->set_passes(7);
  config.mutable_replay()->set_reincarnate_after(43);
  method.set_name(v1::METHOD_NAME_AWM);
  method.set_advantage_ddof(1);
  method.set_advantage_divisor(v1::ADVANTAGE_DIVISOR_ROOT);
  method.set_advantage_epsilon(0.003);
  method.set_reward_mix(v1::REWARD_MIX_GDPO);
  method.set_step_fraction(0.61);
  method.set_step_weight(v1::STEP_WEIGHT_NOISE);
  method.set_reference_every(41);
  method.set_old_kl_weight(0.031);
  v1::BranchConfig& branch = *method.mutable_branch();
  branch.set_fusion(v1::BRANCH_FUSION_SOFTMAX);
  branch.set_pruning(v1::BRANCH_PRUNING_EXTREMES);
  branch.set_kept(0.43);
  branch.add_pruned_steps(6);
  branch.add_pruned_steps(7);
  branch.set_pruned_hold(29);
  SetForwardProcess(method);
  v1::RewardTerm& term = *config.mutable_reward()->add_terms();
  term.set_name("a");
  term.set_weight(1.7);
  v1::OptimizerConfig& optimizer = *config.mutable_optimizer();
  optimizer.set_learning_rate(0.013);
  optimizer.set_beta1(0.81);
  optimizer.set_beta2(0.982);
  optimizer.set_epsilon(1.5e-7);
  optimizer.set_weight_decay(0.017);
  optimizer.set_grad_norm_max(1.25);
  optimizer.set_warmup_updates(9);
  optimizer.set_decay(v1::RATE_SHAPE_COSINE);
  optimizer.set_decay_steps(44);
  optimizer.set_decay_to(0.21);
  config.mutable_replay()->set_reward(v1::REPLAY_REWARD_STORED);
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
  EXPECT_EQ(options.sampling.Id(), sampling.Id());
  EXPECT_EQ(options.run_seed, 101u);
  EXPECT_EQ(options.updates, 3);
  EXPECT_EQ(options.clip().low, 0.11);
  EXPECT_EQ(options.clip().high, 0.12);
  EXPECT_EQ(options.advantage.clip, 6.5);
  EXPECT_EQ(options.advantage.std, rl::AdvantageStd::kNone);
  EXPECT_EQ(options.zero_variance, rl::ZeroVariance::kMeanOverKept);
  EXPECT_EQ(options.correction, rl::Correction::kNaive);
  EXPECT_EQ(options.weight_cap, 2.5);
  EXPECT_EQ(options.kept_steps, 2) << "this method replays whole images";
  EXPECT_EQ(options.kept_kc_max, 0.35);
  EXPECT_EQ(options.kl.weight, 0.012);
  EXPECT_EQ(options.kl.space, rl::KlSpace::kMean);
  EXPECT_TRUE(options.kl.all_steps);
  EXPECT_EQ(options.passes, 5);
  EXPECT_EQ(options.replay_passes, 7);
  EXPECT_EQ(options.reincarnate_after, 43);
  EXPECT_EQ(options.copies.reference_at, 43);
  EXPECT_EQ(options.kl.precedent, 0.37);
  EXPECT_EQ(options.method, rl::MethodKind::kAwm);
  EXPECT_EQ(options.advantage.ddof, 1);
  EXPECT_EQ(options.advantage.divisor, rl::AdvantageDivisor::kRoot);
  EXPECT_EQ(options.advantage.epsilon, 0.003);
  EXPECT_EQ(options.reward_mix, rl::RewardMix::kGdpo);
  EXPECT_EQ(options.reward_weights, (std::map<std::string, double>{{"a", 1.7}}));
  EXPECT_EQ(options.step_fraction, 0.61);
  EXPECT_EQ(options.step_weight, rl::StepWeight::kNoise);
  EXPECT_EQ(options.copies.reference_every, 41);
  EXPECT_EQ(options.branch.fusion, rl::BranchFusion::kSoftmax);
  EXPECT_EQ(options.branch.pruning, rl::BranchPruning::kExtremes);
  EXPECT_EQ(options.branch.kept, 0.43);
  EXPECT_EQ(options.branch.pruned_steps, (std::vector<int>{6, 7}));
  EXPECT_EQ(options.branch.pruned_hold, 29);
  EXPECT_EQ(options.adamw.learning_rate, 0.013);
  EXPECT_EQ(options.adamw.beta1, 0.81);
  EXPECT_EQ(options.adamw.beta2, 0.982);
  EXPECT_EQ(options.adamw.epsilon, 1.5e-7);
  EXPECT_EQ(options.adamw.weight_decay, 0.017);
  EXPECT_EQ(options.grad_norm_max, 1.25);
  EXPECT_EQ(options.adamw.warmup_updates, 9);
  EXPECT_EQ(options.rate_schedule.shape, rl::RateShape::kCosine);
  EXPECT_EQ(options.rate_schedule.steps, 44u);
  EXPECT_EQ(options.rate_schedule.to, 0.21);
  EXPECT_TRUE(options.stored_rewards);
  EXPECT_FALSE(options.replayed_in_mean);
  EXPECT_FALSE(options.ema_enabled);
  EXPECT_EQ(options.ema_decay_max, 0.77);
}

TEST(TrainerOptionsTest, KeptStepsArriveWhereHeadsAreReplayed) {
  flow::SamplingSpec sampling;
  sampling.sigmas = {1, 0.8, 0.6, 0.4, 0.2, 0};
  sampling.sde = {true, true, true, true, false};
  v1::RunConfig config = Config();
  config.mutable_method()->set_name(v1::METHOD_NAME_GRPO);
  EXPECT_EQ(MakeTrainerOptions(config, sampling, std::nullopt).kept_steps, 4);
}

// Promise: The clip feels no rounding of a worker.
TEST(TrainerOptionsTest, TheClipsCentreIsRecomputedWhereRoundingFillsTheRange) {
  const auto resolved = [](std::vector<std::string> settings) {
    return config::LoadRunConfig({}, settings, {})->config;
  };
  struct Case {
    std::vector<std::string> settings;
    bool recomputes;
    double limit;
  };
  const Case cases[] = {
      {{"method.clip_range=1e-5"}, false, 5e-6},  // CPUs in float32 round alike.
      {{"method.clip_range=1e-2"}, false, 1e-3},
      {{"method.clip_range=1e-4", "model.compute_dtype=bf16"}, true, 1e-3},
      {{"method.clip_range=2e-3", "model.compute_dtype=bf16"}, false, 1e-3},
      {{"method.clip_range=1e-5", "model.device=cuda"}, true, 1e-4},
      {{"method.clip_range=1e-3", "model.device=cuda"}, false, 5e-4},
      {{"method.clip_range=1e-3", "method.clip_range_high=1e-5", "model.device=cuda"}, true, 1e-4},
      {{"method.clip_range=1e-5", "model.device=cuda", "method.old_log_prob=behaviour"},
       false,
       5e-6},
      {{"method.clip_range=1e-3", "method.old_log_prob=recompute"}, true, 5e-4},
      {{"method.clip_range=1e-5", "model.trained=lora", "model.lora.merge_for_rollouts=true"},
       true,
       1e-4},
      {{"method.name=dppo", "method.clip_range=1e-5", "model.device=cuda"}, false, 1e-4},
      {{"method.name=awm", "method.old_log_prob=recompute"}, false, 5e-5},
  };
  for (const Case& c : cases) {
    const v1::RunConfig config = resolved(c.settings);
    EXPECT_EQ(RecomputesOldLogProbs(config), c.recomputes) << c.settings.back();
    EXPECT_DOUBLE_EQ(OnPolicyRatioLimit(config), c.limit) << c.settings.back();
  }
}

TEST(TrainerOptionsTest, EverySettingOfForwardProcessMethodsArrives) {
  flow::SamplingSpec sampling;
  sampling.sigmas = {1, 0.5, 0};
  sampling.sde = {true, false};
  const rl::TrainerOptions options = MakeTrainerOptions(Config(), sampling, std::nullopt);
  EXPECT_EQ(options.old_kl_weight, 0.031);
  EXPECT_EQ(options.times.sampler, rl::TimeSampler::kUniform);
  EXPECT_EQ(options.times.count, 7);
  EXPECT_EQ(options.times.fraction, 0.83);
  EXPECT_EQ(options.times.shift, 2.75);
  EXPECT_EQ(options.times.low, 0.33);
  EXPECT_EQ(options.times.high, 0.94);
  EXPECT_EQ(options.times.times, rl::Sharing::kGroup);
  EXPECT_EQ(options.times.noise, rl::Sharing::kStep);
  EXPECT_EQ(options.copies.old.shape, rl::DecayShape::kLinear);
  EXPECT_EQ(options.copies.old.decay, 0.71);
  EXPECT_EQ(options.copies.old.rate, 0.0041);
  EXPECT_EQ(options.copies.old.flat, 74u);
  EXPECT_EQ(options.copies.old.warmup, 13u);
}

TEST(TrainerOptionsTest, TheChosenMethodsOwnSectionArrives) {
  flow::SamplingSpec sampling;
  sampling.sigmas = {1, 0.5, 0};
  sampling.sde = {true, false};
  const auto settings = [&](v1::MethodName name) {
    v1::RunConfig config = Config();
    config.mutable_method()->set_name(name);
    return MakeTrainerOptions(config, sampling, std::nullopt).settings.values;
  };
  using Values = std::map<std::string, double>;
  EXPECT_EQ(settings(v1::METHOD_NAME_GRPO), Values());
  EXPECT_EQ(settings(v1::METHOD_NAME_GUARD), Values());
  EXPECT_EQ(settings(v1::METHOD_NAME_NFT), (Values{{"beta", 0.12}}));
  EXPECT_EQ(settings(v1::METHOD_NAME_AWM),
            (Values{{"weighting", static_cast<double>(rl::AwmWeighting::kSquare)}, {"ratio", 0}}));
  EXPECT_EQ(settings(v1::METHOD_NAME_V_GRPO),
            (Values{{"prediction", static_cast<double>(rl::VGrpoPrediction::kVelocity)},
                    {"weight", static_cast<double>(rl::VGrpoWeight::kBound)}}));
}

// A class asks for settings by key; one that its section does not have ends the process.
TEST(TrainerOptionsTest, EveryMethodsClassTakesItsSectionOfTheDefaults) {
  flow::SamplingSpec sampling;
  sampling.sigmas = {1, 0.5, 0};
  sampling.sde = {true, false};
  const auto ranks = parallel::MakeSingleRank();
  const rl::ToyPolicy policy;
  for (const rl::MethodFacts& method : rl::AllMethods()) {
    const auto run = config::LoadRunConfig(
        {}, {"recipe=digits-op-grpo", std::string("method.name=") + method.name}, {});
    ASSERT_TRUE(run.ok()) << run.status();
    const rl::TrainerOptions options = MakeTrainerOptions(run->config, sampling, std::nullopt);
    EXPECT_EQ(rl::FactsOf(options.method).name, method.name);
    EXPECT_NE(rl::MakeMethod(options, policy, *ranks), nullptr);
  }
}

TEST(TrainerOptionsTest, TheOldPolicyIsTheMethods) {
  v1::MethodConfig method;
  const auto old = [&](v1::MethodName name, double pull) {
    method.set_name(name);
    method.set_old_kl_weight(pull);
    return OldPolicyOf(method);
  };
  EXPECT_EQ(old(v1::METHOD_NAME_GRPO, 0), model::OldPolicy::kNone);
  EXPECT_EQ(old(v1::METHOD_NAME_NFT, 0), model::OldPolicy::kSamples);
  EXPECT_EQ(old(v1::METHOD_NAME_AWM, 0), model::OldPolicy::kNone);
  EXPECT_EQ(old(v1::METHOD_NAME_AWM, 0.1), model::OldPolicy::kKept);
  EXPECT_EQ(old(v1::METHOD_NAME_V_GRPO, 0.1), model::OldPolicy::kNone);
  method.set_sample_from(v1::SAMPLE_FROM_OLD);
  EXPECT_EQ(old(v1::METHOD_NAME_AWM, 0), model::OldPolicy::kSamples);
}

// A LoRA's reference is the base model: only one that moves needs an adapter.
TEST(TrainerOptionsTest, AReferenceMovesWhereSomethingReadsItAndItIsToldTo) {
  v1::RunConfig config;
  const auto moves = [&] { return MovesReference(config); };
  config.mutable_method()->set_kl_weight(0.1);
  EXPECT_FALSE(moves());
  config.mutable_replay()->set_reincarnate_after(3);
  EXPECT_TRUE(moves());
  config.mutable_method()->set_kl_precedent(1);
  EXPECT_FALSE(ReadsReference(config.method())) << "all of the KL is to the policy before the step";
  EXPECT_FALSE(moves());
  config.mutable_method()->mutable_anchor()->set_weight(0.1);
  EXPECT_TRUE(moves());
  config.mutable_replay()->clear_reincarnate_after();
  EXPECT_FALSE(moves());
  config.mutable_method()->set_reference_every(2);
  EXPECT_TRUE(moves());
}

}  // namespace
}  // namespace oxbow::run
