// SPDX-License-Identifier: Apache-2.0
// ReMix's three parts: the pull towards the policy before the step, further passes over what is
// replayed, and reincarnation.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "core/rl/training_plan.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::rl {
namespace {

using Vector = std::vector<double>;

constexpr int kTrained = 5;  // Steps 0 .. 4 of 10.
constexpr int kGroups = 2;
constexpr int kSize = 4;
constexpr double kWeight = 0.3;

TrainerOptions Options() {
  TrainerOptions options{
      .sampling = {.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, 3),
                   .sde = std::vector<bool>(10, false)},
      .run_seed = 3,
      .updates = 1,
      .passes = 2,
      .clip_range = 1,
      .adamw = {.learning_rate = 1e-3}};
  for (size_t i = 0; i < kTrained; ++i) options.sampling.sde[i] = true;
  options.kl = {.weight = kWeight, .all_steps = true};
  options.grad_norm_max = 0;
  return options;
}

struct Bench {
  explicit Bench(TrainerOptions o) : options(std::move(o)) {}

  std::vector<Group> Rollout(uint64_t step) {
    std::vector<Group> groups;
    for (uint64_t g = 0; g < kGroups; ++g) {
      groups.push_back(ToyGroup(options.sampling, policy.current(), step * 10 + g, kSize,
                                trainer.version().value));
    }
    return groups;
  }
  StepResult Step(uint64_t step, const std::vector<Group>& groups) {
    auto result = trainer.Step(LearnerStep(step), groups);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : StepResult{};
  }
  at::Tensor weights() { return policy.parameters().flat().detach().clone(); }
  at::Tensor moment() { return trainer.State()->at("adamw.first_moment").to(at::kDouble); }

  const TrainerOptions options;
  ToyPolicy policy;
  std::unique_ptr<parallel::Ranks> ranks = parallel::MakeSingleRank();
  Trainer trainer{options, policy, *ranks};
};

Vector ToVector(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
  return Vector(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
}

// Weights lie flat as level [D], mix [D, D], prompt [D, tokens].
Vector VelocityOf(const Vector& theta, const Vector& x, const Vector& tokens, double sigma) {
  const double* mix = theta.data() + kToyDims;
  const double* prompt = mix + kToyDims * kToyDims;
  Vector v(kToyDims);
  for (size_t d = 0; d < kToyDims; ++d) {
    v[d] = sigma * theta[d];
    for (size_t k = 0; k < kToyDims; ++k) v[d] += mix[d * kToyDims + k] * x[k];
    for (size_t k = 0; k < kToyTokens; ++k) v[d] += prompt[d * kToyTokens + k] * tokens[k];
  }
  return v;
}

// The mean over trained rows of mean (v - v_before)^2, in doubles.
double Divergence(const std::vector<double>& sigmas, const std::vector<Group>& groups,
                  const Vector& theta, const Vector& before) {
  double sum = 0;
  for (const Group& group : groups) {
    const Vector tokens = ToVector(group.conditioning.at(model::kPromptTokens));
    for (const Trajectory& trajectory : group.trajectories) {
      for (int i = 0; i < kTrained; ++i) {
        const Vector x = ToVector(trajectory.latents[i]);
        const double sigma = sigmas[static_cast<size_t>(i)];
        const Vector v = VelocityOf(theta, x, tokens, sigma);
        const Vector w = VelocityOf(before, x, tokens, sigma);
        for (size_t d = 0; d < kToyDims; ++d) sum += (v[d] - w[d]) * (v[d] - w[d]) / kToyDims;
      }
    }
  }
  return sum / (kGroups * kSize * kTrained);
}

// A step of two updates. The first starts at the policy before the step, where the pull towards it
// is 0 with its gradient. So it is that of a run without a KL, and the second update differs by the
// gradient of the divergence alone.
TEST(PrecedentTest, TheSecondUpdateHasTheGradientOfTheDivergenceFromTheFirstPolicy) {
  TrainerOptions options = Options();
  options.kl.precedent = 1;
  TrainerOptions plain = options;
  plain.kl.weight = 0;
  TrainerOptions one = plain;
  one.passes = 1;
  Bench pulled(options), free(plain), once(one);
  const std::vector<Group> groups = pulled.Rollout(0);
  const Vector before = ToVector(pulled.weights());
  once.Step(0, groups);
  free.Step(0, groups);
  const auto metrics = pulled.Step(0, groups).metrics;
  const Vector moved = ToVector(once.weights());

  const std::vector<double>& sigmas = options.sampling.sigmas;
  const double divergence = Divergence(sigmas, groups, moved, before);
  EXPECT_GT(divergence, 0);
  EXPECT_NEAR(metrics.at("train/kl_precedent_div"), divergence / 2, 1e-5 * divergence);
  EXPECT_NEAR(metrics.at("train/kl_loss"), kWeight * divergence / 2, 1e-5 * divergence);
  EXPECT_EQ(metrics.count("train/kl_div"), 0u) << "nothing pulls to the reference";

  Vector gradient;
  for (size_t p = 0; p < moved.size(); ++p) {
    constexpr double kNudge = 1e-5;
    Vector up = moved, down = moved;
    up[p] += kNudge;
    down[p] -= kNudge;
    gradient.push_back(
        kWeight *
        (Divergence(sigmas, groups, up, before) - Divergence(sigmas, groups, down, before)) /
        (2 * kNudge));
  }
  // Both have the same first moment after the first update.
  const at::Tensor want = at::tensor(gradient, at::kDouble) * (1 - options.adamw.beta1);
  const at::Tensor error = pulled.moment() - free.moment() - want;
  EXPECT_LT(error.norm().item<double>(), 2e-3 * want.norm().item<double>());
}

// At a step's first update, far from the reference: only the reference pulls, by its share.
TEST(PrecedentTest, TheTwoPullsAreAWeightedMean) {
  const auto moment = [](double weight, double precedent) {
    TrainerOptions options = Options();
    options.passes = 1;
    options.kl.weight = weight;
    options.kl.precedent = precedent;
    Bench bench(options);
    {
      const at::NoGradGuard no_grad;
      bench.policy.parameters().flat().add_(
          ToyNormal(51, bench.policy.parameters().flat().sizes(), 0.04));
    }
    bench.Step(0, bench.Rollout(0));
    return bench.moment();
  };
  const at::Tensor none = moment(0, 0);
  const at::Tensor whole = moment(kWeight, 0) - none;
  ASSERT_GT(whole.norm().item<double>(), 0);
  for (const double share : {.25, .5, .9}) {
    const at::Tensor part = moment(kWeight, share) - none;
    EXPECT_LT((part - whole * (1 - share)).norm().item<double>(),
              1e-4 * whole.norm().item<double>());
  }
  EXPECT_TRUE(at::equal(moment(kWeight, 1), none)) << "nothing pulls at the only update";
}

Group WithReplayed(Group group, std::vector<size_t> replayed) {
  for (const size_t s : replayed) {
    group.trajectories[s].replayed = true;
    group.trajectories[s].entry_id = EntryId(group.id.value * 100 + s + 1);
    group.trajectories[s].kept_steps = kTrained;
  }
  return group;
}

using Updates = std::vector<std::vector<size_t>>;

Updates UpdatesOf(const TrainerOptions& options, uint64_t step, const std::vector<Group>& groups) {
  const auto plan = [](const Group&, const Trajectory&) {
    PlannedTrajectory planned;
    planned.rows.emplace_back();
    return planned;
  };
  return PlanTraining(options, LearnerStep(step), groups, plan).updates;
}

TEST(ReplayPassesTest, FurtherPassesHaveTheReplayedSamplesAlone) {
  TrainerOptions options = Options();
  options.updates = 2;
  options.passes = 1;
  Bench bench(options);
  std::vector<Group> groups = bench.Rollout(0);
  const Updates before = UpdatesOf(options, 0, groups);
  options.replay_passes = 3;
  EXPECT_EQ(UpdatesOf(options, 0, groups), before) << "nothing is replayed";
  groups[0] = WithReplayed(groups[0], {1});
  groups[1] = WithReplayed(groups[1], {0, 2});
  Updates wanted = before;
  wanted.push_back({1, kSize + 0, kSize + 2});
  wanted.push_back(wanted.back());
  EXPECT_EQ(UpdatesOf(options, 0, groups), wanted);
  options.replay_passes = 1;
  EXPECT_EQ(UpdatesOf(options, 0, groups), before) << "they are passes, not further ones";
}

// Half of the replayed samples of a step go through the first pass and the extra one alike: the
// clip's centre is the policy before the step in both.
TEST(ReplayPassesTest, TheExtraUpdateComparesWithThePolicyBeforeTheStep) {
  TrainerOptions options = Options();
  options.passes = 1;
  options.replay_passes = 2;
  options.kl.weight = 0;
  Bench bench(options);
  std::vector<Group> groups = bench.Rollout(0);
  groups[0] = WithReplayed(groups[0], {1, 2});
  const auto metrics = bench.Step(0, groups).metrics;
  EXPECT_EQ(bench.trainer.version(), PolicyVersion(2));
  EXPECT_GT(metrics.at("train/ratio_std"), 0) << "the policy had moved";
  EXPECT_EQ(metrics.at("train/rows_backward"), kTrained * (kGroups * kSize + 2));
  const auto without = bench.Step(1, bench.Rollout(1)).metrics;
  EXPECT_EQ(without.at("train/rows_backward"), kTrained * kGroups * kSize);
  EXPECT_EQ(bench.trainer.version(), PolicyVersion(4)) << "versions tell steps";
  EXPECT_EQ(without.at("train/staleness_max"), 0);
}

// Promise: An end of reuse is an end. After `replay.reincarnate_after` steps the reference is the
// policy of that step, no later step replays anything, and each passes its samples once. A
// deterministic run whose learner is killed before or after, or has other ranks, has the same
// losses and bytes of weights; so has one with further passes over replayed samples, a pull to the
// policy before the step and draws by variance.
TEST(ReincarnationTest, ItEndsFurtherPassesAndMovesTheReferenceOnce) {
  TrainerOptions options = Options();
  options.passes = 2;
  options.replay_passes = 3;
  options.reincarnate_after = 2;
  options.copies.reference_at = 2;
  options.kl.precedent = 0.5;
  Bench bench(options);
  const at::Tensor start = bench.weights();
  const auto step = [&](uint64_t number) {
    std::vector<Group> groups = bench.Rollout(number);
    groups[0] = WithReplayed(groups[0], {0});
    const auto metrics = bench.Step(number, groups).metrics;
    const bool reborn = number >= options.reincarnate_after;
    EXPECT_EQ(metrics.contains("train/kl_precedent_div"), !reborn);
    if (reborn) {
      EXPECT_NEAR(metrics.at("train/kl_loss"), options.kl.weight * metrics.at("train/kl_div"),
                  1e-12)
          << "the reference alone pulls, with the whole weight";
    }
    return metrics.at("train/rows_backward") / kTrained;
  };
  EXPECT_EQ(step(0), 2 * kGroups * kSize + 1);
  EXPECT_TRUE(at::equal(bench.policy.reference_parameters().flat(), start));
  EXPECT_EQ(step(1), 2 * kGroups * kSize + 1);
  const at::Tensor reborn = bench.weights();
  EXPECT_TRUE(at::equal(bench.policy.reference_parameters().flat(), reborn));
  EXPECT_EQ(step(2), kGroups * kSize);
  EXPECT_EQ(step(3), kGroups * kSize);
  EXPECT_TRUE(at::equal(bench.policy.reference_parameters().flat(), reborn));
  EXPECT_FALSE(at::equal(bench.weights(), reborn));
}

}  // namespace
}  // namespace oxbow::rl
