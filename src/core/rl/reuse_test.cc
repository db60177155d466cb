// SPDX-License-Identifier: Apache-2.0
// Samples of older policies, and clip centres of another device's log-probs.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/parallel/ranks.h"
#include "core/rl/method.h"
#include "core/rl/trainer.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::rl {
namespace {

constexpr int kSteps = 6;
constexpr int kKept = 2;

TrainerOptions Options() {
  TrainerOptions options;
  options.sampling = {.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kSteps, 3),
                      .sde = {true, true, true, true, true, false}};
  options.run_seed = 3;
  options.updates = 1;
  options.clip_range = 1e-4;
  options.kept_steps = kKept;
  options.adamw.learning_rate = 1e-3;
  return options;
}

struct Bench {
  explicit Bench(const TrainerOptions& o)
      : options(o), method(MakeMethod(options, policy, *ranks)), trainer(o, policy, *ranks) {}

  std::vector<Group> Rollout(uint64_t version = 0) {
    std::vector<Group> groups;
    for (uint64_t g = 0; g < 3; ++g) {
      groups.push_back(ToyGroup(options.sampling, policy.current(), 100 + g, 5, version));
    }
    return groups;
  }
  PlannedTrajectory Plan(const Group& group, uint64_t version) {
    return method->Plan(LearnerStep(1), PolicyVersion(version), group, group.trajectories[0]);
  }

  const TrainerOptions options;
  ToyPolicy policy;
  std::unique_ptr<parallel::Ranks> ranks = parallel::MakeSingleRank();
  std::unique_ptr<Method> method;
  Trainer trainer;
};

double Weight(const PlannedTrajectory& planned) {
  double sum = 0;
  for (const PlannedRow& row : planned.rows) sum += row.trained ? row.weight : 0;
  return sum;
}

// Else the learning rate would come and go with staleness.
// Promise: No step is lost in silence.
TEST(ReuseTest, AStaleSampleCountsAsMuchAsAFreshOneThoughItLosesSteps) {
  Bench bench(Options());
  const Group group = bench.Rollout(/*version=*/7)[0];
  const PlannedTrajectory fresh = bench.Plan(group, 7);
  EXPECT_EQ(fresh.rows.size(), 5u);
  for (const PlannedRow& row : fresh.rows) EXPECT_EQ(row.weight, 1);
  const PlannedTrajectory stale = bench.Plan(group, 8);
  EXPECT_EQ(stale.rows.size(), 2u);
  EXPECT_DOUBLE_EQ(Weight(stale), Weight(fresh));

  TrainerOptions thinned = Options();
  thinned.step_fraction = .6;  // Three of five steps: a stale sample has only two.
  Bench less(thinned);
  EXPECT_DOUBLE_EQ(Weight(less.Plan(group, 7)), 3);
  EXPECT_DOUBLE_EQ(Weight(less.Plan(group, 8)), 3);
}

TEST(ReuseTest, AStochasticTailOfOlderWeightsIsPartOfW) {
  Bench bench(Options());
  Group group = bench.Rollout(/*version=*/7)[0];
  Trajectory& sample = group.trajectories[0];
  sample.replayed = true;
  sample.kept_steps = kKept;
  for (int i = 0; i < kKept; ++i) sample.behaviour_version[static_cast<size_t>(i)] = 3;
  for (const uint64_t now : {7, 8}) {
    const PlannedTrajectory planned = bench.Plan(group, now);
    ASSERT_EQ(planned.rows.size(), 5u);
    for (const PlannedRow& row : planned.rows) {
      EXPECT_EQ(row.in_weight, row.step < kKept || now == 8) << "step " << row.step;
      EXPECT_EQ(row.weight, 1) << "a head counts by its steps";
    }
  }
}

// A worker's device rounds log-probs by more than the clip range.
std::vector<Group> Rounded(std::vector<Group> groups) {
  for (Group& group : groups) {
    for (Trajectory& sample : group.trajectories) {
      for (size_t i = 0; i < sample.log_prob.size(); ++i) {
        if (sample.sde[i]) sample.log_prob[i] += i % 2 == 0 ? 5e-4f : -5e-4f;
      }
    }
  }
  return groups;
}

// Promise: The clip feels no rounding of a worker. With `method.old_log_prob: recompute`, which
// `auto` chooses where the clip range is near the rounding of the device, weights do not depend on
// the rounding of a worker's log-probs. The error is still measured.
TEST(ReuseTest, ARecomputedCentreFeelsNoRoundingOfTheWorker) {
  Bench exact(Options());
  const std::vector<Group> groups = exact.Rollout();
  ASSERT_TRUE(exact.trainer.Step(LearnerStep(0), groups).ok());

  Bench behaviour(Options());
  const auto clipped = behaviour.trainer.Step(LearnerStep(0), Rounded(groups));
  ASSERT_TRUE(clipped.ok());
  EXPECT_EQ(clipped->metrics.at("train/clip_frac_total"), 1) << "before anything was learned";

  TrainerOptions options = Options();
  options.recompute_on_policy = true;
  options.onpolicy_ratio_limit = .125;
  Bench recomputed(options);
  const auto centred = recomputed.trainer.Step(LearnerStep(0), Rounded(groups));
  ASSERT_TRUE(centred.ok());
  EXPECT_EQ(centred->metrics.at("train/clip_frac_total"), 0);
  EXPECT_TRUE(at::equal(recomputed.policy.parameters().flat(), exact.policy.parameters().flat()));
  EXPECT_FALSE(at::equal(behaviour.policy.parameters().flat(), exact.policy.parameters().flat()));
  EXPECT_NEAR(centred->metrics.at("train/onpolicy_ratio_err"), 5e-4, 1e-5)
      << "the worker's error is still seen";
  EXPECT_EQ(centred->metrics.at("train/onpolicy_ratio_limit"), .125);
}

// The samples with the log-probs that a forward pass of the policy as it is gives them.
std::vector<Group> Scored(const Bench& bench, std::vector<Group> groups) {
  const at::NoGradGuard no_grad;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t s = 0; s < groups[g].trajectories.size(); ++s) {
      PlannedTrajectory planned{.group = g, .trajectory = s};
      for (int i = 0; i + 1 < kSteps; ++i) {
        const double sigma = bench.options.sampling.sigmas[static_cast<size_t>(i)];
        planned.rows.push_back({.step = i, .sigma = sigma});
      }
      std::vector<RowRef> refs;
      AppendRows(planned, refs);
      const RowBatch batch = GatherTransitions(groups, refs);
      const at::Tensor v =
          bench.policy.current().Velocity(batch.x, batch.sigma, batch.conditioning);
      const at::Tensor scores = ScoreRows(bench.options.sampling, batch, v);
      for (int64_t i = 0; i < scores.size(0); ++i) {
        groups[g].trajectories[s].log_prob[static_cast<size_t>(i)] = scores[i].item<float>();
      }
    }
  }
  return groups;
}

// One step with a forward pass for every centre, and one that takes what its training passes give.
// The first scores `groups` here and calls these the worker's, as `scored` corrects them. Returns
// how many more forward rows the second took.
double CompareCentres(const TrainerOptions& scored, const TrainerOptions& own, uint64_t version) {
  Bench before(scored);
  Bench after(own);
  const std::vector<Group> groups = before.Rollout(version);
  const auto two_passes = before.trainer.Step(LearnerStep(0), Scored(before, groups));
  const auto one_pass = after.trainer.Step(LearnerStep(0), Rounded(groups));
  EXPECT_TRUE(two_passes.ok() && one_pass.ok()) << two_passes.status() << one_pass.status();
  if (!two_passes.ok() || !one_pass.ok()) return -1;
  EXPECT_TRUE(at::equal(after.policy.parameters().flat(), before.policy.parameters().flat()));
  for (const char* name : {"adamw.first_moment", "adamw.second_moment"}) {
    EXPECT_TRUE(at::equal(after.trainer.State()->at(name), before.trainer.State()->at(name)));
  }
  for (const char* name : {"train/loss", "train/policy_loss", "train/grad_norm", "train/ratio_min",
                           "train/ratio_max", "train/ratio_std", "train/clip_frac_total"}) {
    EXPECT_EQ(one_pass->metrics.at(name), two_passes->metrics.at(name)) << name;
  }
  return one_pass->metrics.at("train/rows_forward") - two_passes->metrics.at("train/rows_forward");
}

// Promise: The first update's ratio is 1. The log-prob at the clip's centre is that of the row's
// own training pass, in a learner step's first update, whatever the kernels round. Losses and
// gradients are those of a forward pass of its own, which only rows of later updates take.
TEST(ReuseTest, CentresOfTrainingPassesTrainWhatCentresOfForwardPassesDo) {
  for (const MethodKind method :
       {MethodKind::kGrpo, MethodKind::kGspo, MethodKind::kGuard, MethodKind::kDppo}) {
    for (const int updates : {1, 2}) {
      for (const int passes : {1, 2}) {
        for (const int rows_per_pass : {0, 7}) {
          SCOPED_TRACE(testing::Message() << "method " << static_cast<int>(method) << ", "
                                          << updates << " updates, " << passes << " passes");
          TrainerOptions options = Options();
          options.method = method;
          options.updates = updates;
          options.passes = passes;
          options.rows_per_pass = rows_per_pass;
          TrainerOptions own = options;
          own.recompute_on_policy = true;
          // The second update has eight of fifteen samples, whose velocities are kept for methods
          // that compare means. A second pass keeps what the first had.
          const bool keeps = method == MethodKind::kGuard || method == MethodKind::kDppo;
          EXPECT_EQ(CompareCentres(options, own, /*version=*/0), updates == 1 || keeps ? 0 : 8 * 5);
        }
      }
    }
  }
}

// ReMix's pull keeps velocities, which say the log-probs, too.
TEST(ReuseTest, KeptVelocitiesSayTheCentresOfLaterUpdates) {
  TrainerOptions convex = Options();
  convex.updates = 2;
  convex.kl = {.weight = .1, .all_steps = true, .precedent = .5};
  TrainerOptions own = convex;
  own.recompute_on_policy = true;
  EXPECT_EQ(CompareCentres(convex, own, /*version=*/0), 0);
}

TEST(ReuseTest, OnlyWAndLaterUpdatesTakeAForwardPassForStaleRows) {
  TrainerOptions naive = Options();
  naive.correction = Correction::kNaive;
  TrainerOptions none = Options();
  none.correction = Correction::kNone;
  EXPECT_EQ(CompareCentres(naive, none, /*version=*/7), 0);

  Bench weighted(Options());
  const auto step = weighted.trainer.Step(LearnerStep(0), weighted.Rollout(/*version=*/7));
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->metrics.at("train/rows_forward"), 15 * kKept) << "W reads the kept steps";
}

// A number that a chosen group moves says nothing of the policy.
TEST(ReuseTest, TheMeanRewardIsOfFreshGroupsOnThePromptsOfTheDataSet) {
  Bench bench(Options());
  std::vector<Group> groups = bench.Rollout();
  for (Trajectory& sample : groups[2].trajectories) sample.reward += 10;
  double fresh = 0;
  for (const size_t g : {0, 1}) {
    for (const Trajectory& sample : groups[g].trajectories) fresh += sample.reward / 10;
  }
  groups[2].from_data_set = false;
  const auto chosen = bench.trainer.Step(LearnerStep(0), groups);
  ASSERT_TRUE(chosen.ok());
  EXPECT_NEAR(chosen->metrics.at("train/reward_mean"), fresh, 1e-9);
  EXPECT_GT(chosen->metrics.at("train/chosen_reward_mean"), 9);
  groups[2].from_data_set = true;
  Bench other(Options());
  const auto all = other.trainer.Step(LearnerStep(0), groups);
  EXPECT_EQ(all->metrics.count("train/chosen_reward_mean"), 0u);
  EXPECT_EQ(all->metrics.at("train/loss"), chosen->metrics.at("train/loss"));
}

TEST(ReuseTest, TheGradientsSizeIsKnownPerElement) {
  TrainerOptions options = Options();
  options.grad_norm_max = 1e-3;
  Bench bench(options);
  const auto result = bench.trainer.Step(LearnerStep(0), bench.Rollout());
  ASSERT_TRUE(result.ok());
  ASSERT_GT(result->metrics.at("train/grad_norm"), 1e-3);
  const auto elements = static_cast<double>(bench.policy.parameters().flat().numel());
  EXPECT_DOUBLE_EQ(result->metrics.at("train/grad_rms"), 1e-3 / std::sqrt(elements));
}

}  // namespace
}  // namespace oxbow::rl
