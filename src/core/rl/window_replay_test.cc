// SPDX-License-Identifier: Apache-2.0
// Windows that move from learner step to learner step: what is divided by, and heads that were
// stored under another window.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/flow/window.h"
#include "core/parallel/ranks.h"
#include "core/rl/loss_weight.h"
#include "core/rl/trainer.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::rl {
namespace {

constexpr int kSteps = 10;

flow::SamplingSpec SpecOf(const std::vector<int>& stochastic) {
  return {.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kSteps, 3),
          .sde = flow::StepFlags(stochastic, kSteps)};
}

TrainerOptions OptionsFor(const flow::SamplingSpec& spec) {
  return {.sampling = spec,
          .run_seed = 3,
          .updates = 2,
          .clip_range = 2e-3,
          .adamw = {.learning_rate = 1e-3}};
}

struct Bench {
  explicit Bench(const TrainerOptions& o) : trainer(o, policy, *ranks) {}

  std::vector<Group> Rollout(const flow::SamplingSpec& spec, uint64_t step) {
    std::vector<Group> groups;
    for (uint64_t g = 0; g < 3; ++g) {
      groups.push_back(
          ToyGroup(spec, policy.current(), step * 100 + g, 5, trainer.version().value));
    }
    return groups;
  }

  ToyPolicy policy;
  std::unique_ptr<parallel::Ranks> ranks = parallel::MakeSingleRank();
  Trainer trainer;
};

// Keeps the latents of the stochastic steps alone, as workers send them.
void KeepSpan(Trajectory& trajectory) {
  const flow::LatentSpan span = flow::SpanOf(trajectory.sde);
  trajectory.latents = trajectory.latents.narrow(0, span.first, span.count).clone();
  trajectory.first_latent = span.first;
}

// A run whose window moves does in each step what a run that only ever had that window would do.
// Promise: A step is its formula.
TEST(WindowReplayTest, AStepOfAMovingWindowIsAStepOfThatWindow) {
  const flow::WindowPlan window{
      .kind = flow::WindowKind::kProgressive, .begin = 0, .end = 8, .size = 3, .stride = 2};
  const flow::SamplingSpec reachable = SpecOf(flow::ReachableSteps(window));
  for (uint64_t i = 0; i < 12; ++i) {
    const uint64_t step = i % 4;
    const flow::SamplingSpec now = SpecOf(flow::WindowAt(window, 3, step));
    TrainerOptions moving_options = OptionsFor(reachable);
    moving_options.window = window;
    TrainerOptions fixed_options = OptionsFor(now);
    moving_options.step_weight = fixed_options.step_weight =
        std::array{StepWeight::kNone, StepWeight::kNoise, StepWeight::kSensitivity}[i / 4];
    Bench moving(moving_options);
    Bench fixed(fixed_options);
    std::vector<Group> groups = moving.Rollout(now, step);
    const auto expected = fixed.trainer.Step(LearnerStep(step), groups);
    for (Group& group : groups) {
      for (Trajectory& trajectory : group.trajectories) KeepSpan(trajectory);
    }
    const auto result = moving.trainer.Step(LearnerStep(step), groups);
    ASSERT_TRUE(expected.ok() && result.ok());
    EXPECT_EQ(result->metrics.at("train/loss"), expected->metrics.at("train/loss"));
    EXPECT_EQ(result->metrics.at("train/onpolicy_ratio_err"), 0);
    EXPECT_TRUE(at::equal(moving.policy.parameters().flat(), fixed.policy.parameters().flat()))
        << "learner step " << step << ", weights of steps " << i / 4;
  }
}

// Its density terms are those of its own stochastic steps before i_off, whatever the window is now.
TEST(WindowReplayTest, AHeadIsWeighedOverItsOwnStochasticSteps) {
  const std::vector<int> stored = {3, 4, 5};
  constexpr int kKept = 5;  // i_off cuts the window's last step off.
  TrainerOptions options = OptionsFor(SpecOf({0, 1, 2, 3, 4, 5, 6, 7}));
  options.window = flow::WindowPlan{.kind = flow::WindowKind::kFixed, .end = 8, .steps = {0, 1}};
  Bench bench(options);
  const Group old = bench.Rollout(SpecOf(stored), 7)[0];
  ASSERT_TRUE(bench.trainer.Step(LearnerStep(0), bench.Rollout(SpecOf({0, 1}), 0)).ok());

  std::vector<Group> groups = bench.Rollout(SpecOf({0, 1}), 1);
  Trajectory head = old.trajectories[2];
  head.index = 4;
  head.replayed = true;
  head.entry_id = EntryId(77);
  head.kept_steps = kKept;
  for (size_t i = kKept; i < kSteps; ++i) head.sde[i] = false;  // The tail is the ODE's.
  KeepSpan(head);
  groups[0].conditioning = old.conditioning;
  groups[0].trajectories[4] = head;

  double log_weight = 0;
  for (const int i : {3, 4}) {
    const at::NoGradGuard no_grad;
    const at::Tensor x = head.latents[i - 3].unsqueeze(0);
    const auto sigma = static_cast<float>(options.sampling.sigmas[static_cast<size_t>(i)]);
    const at::Tensor v =
        bench.policy.current().Velocity(x, at::full({1}, sigma), groups[0].conditioning);
    log_weight += flow::ScoreTransition(options.sampling, i, x, head.latents[i - 2].unsqueeze(0), v)
                      .item<float>() -
                  head.log_prob[static_cast<size_t>(i)];
  }
  const auto result = bench.trainer.Step(LearnerStep(1), groups);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->metrics.at("train/iw_mean"), std::exp(log_weight), 1e-6);
  EXPECT_NE(log_weight, 0);
  EXPECT_EQ(result->used, (std::vector<EntryId>{EntryId(77)}));
}

// On the published scale log-probs of cps are -mean (x' - mu)^2. The toy's velocity is linear in
// its weights, so the first update's gradient is a sum over samples of A g times (x, prompt,
// sigma), g = 2 (x' - mu) dmu/dv / D.
TEST(WindowReplayTest, CpsRatiosAreOnThePublishedScale) {
  constexpr int kStep = 4;
  flow::SamplingSpec spec = SpecOf({kStep});
  spec.dynamics = flow::DynamicsKind::kCps;
  TrainerOptions options = OptionsFor(spec);
  options.updates = 1;
  options.grad_norm_max = 1e9;
  options.advantage = {.std = AdvantageStd::kNone, .clip = 1e9};
  Bench bench(options);
  const std::vector<Group> groups = bench.Rollout(spec, 0);
  const auto kernel = flow::GatherKernels(spec, {kStep});
  const auto sigma = static_cast<float>(spec.sigmas[kStep]);
  at::Tensor mix, prompt, level;
  for (const Group& group : groups) {
    double mean = 0;
    for (const Trajectory& t : group.trajectories) mean += t.reward / 5;
    const at::Tensor tokens = group.conditioning.at(model::kPromptTokens).flatten();
    for (const Trajectory& t : group.trajectories) {
      const at::NoGradGuard no_grad;
      const at::Tensor x = t.latents[kStep].unsqueeze(0);
      const at::Tensor v =
          bench.policy.current().Velocity(x, at::full({1}, sigma), group.conditioning);
      const at::Tensor mu = flow::RowMean(*kernel, x, v);
      const at::Tensor slope = flow::RowMean(*kernel, x, v + 1) - mu;
      const at::Tensor g =
          ((t.latents[kStep + 1] - mu) * slope).flatten() * (2 * (t.reward - mean) / kToyDims / 15);
      const auto add = [](at::Tensor& sum, const at::Tensor& term) {
        sum = sum.defined() ? sum + term : term;
      };
      add(mix, at::outer(g, x.flatten()));
      add(prompt, at::outer(g, tokens));
      add(level, g * sigma);
    }
  }
  const double norm = std::hypot(mix.norm().item<double>(), prompt.norm().item<double>(),
                                 level.norm().item<double>());
  const auto result = bench.trainer.Step(LearnerStep(0), groups);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->metrics.at("train/onpolicy_ratio_err"), 0);
  EXPECT_NEAR(result->metrics.at("train/grad_norm"), norm, 1e-4 * norm);
  EXPECT_GT(std::abs(flow::CpsSurrogateScale(flow::KernelAt(spec, kStep)) - 1), 0.1)
      << "not the density's scale";
}

// Three steps x' = .9 x + drift from x = 1, the second with noise, the others the ODE's. The
// behaviour policy has no drift; the mean of its ends, weighed for an old policy that drifts in the
// noisy step.
double WeighedMean(double noisy_drift) {
  constexpr int kSamples = 200'000;
  constexpr double kGain = 0.9, kScale = 0.7;
  RandomStream stream({.seed = 31});
  double mean = 0;
  for (int n = 0; n < kSamples; ++n) {
    const double z = stream.NextNormal();
    const double error = z - noisy_drift / kScale;
    const double weight = ComputeSequenceWeight({-0.5 * error * error}, {-0.5 * z * z}, 1e9).weight;
    mean += weight * kGain * (kGain * kGain + kScale * z) / kSamples;
  }
  return mean;
}

// A drift of the noisy step is made good by the weight. One of a deterministic step is not: the old
// policy never takes the other's path, so no weight can.
TEST(WindowReplayTest, WeightsCorrectStochasticStepsAndCannotCorrectDeterministicOnes) {
  const auto old_mean = [](double first_drift, double noisy_drift) {
    return 0.9 * (0.9 * (0.9 + first_drift) + noisy_drift);
  };
  EXPECT_NEAR(WeighedMean(0.4), old_mean(0, 0.4), 0.02);
  EXPECT_NEAR(old_mean(0.4, 0) - WeighedMean(0), 0.9 * 0.9 * 0.4, 0.01) << "the known mismatch";
}

}  // namespace
}  // namespace oxbow::rl
