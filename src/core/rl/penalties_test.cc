// SPDX-License-Identifier: Apache-2.0
#include "core/rl/penalties.h"

#include <ATen/ATen.h>

#include <memory>

#include "core/flow/schedule.h"
#include "core/parallel/ranks.h"
#include "core/rl/awm.h"
#include "core/rl/row_batch.h"
#include "core/rl/trainer.h"
#include "gtest/gtest.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::rl {
namespace {

constexpr int kGroups = 3;
constexpr int kMembers = 4;

TrainerOptions AwmOptionsOf(double anchor) {
  TrainerOptions options;
  options.sampling.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 4, 1);
  options.sampling.sde = {true, true, true, false};
  options.run_seed = 5;
  options.method = MethodKind::kAwm;
  options.settings.values = {{"weighting", static_cast<double>(AwmWeighting::kLinear)},
                             {"ratio", 0}};
  options.times = {.sampler = TimeSampler::kUniform, .count = 2, .low = .7, .high = 1, .shift = 1};
  options.clip_range = 1;
  options.updates = 2;
  options.anchor.weight = anchor;
  return options;
}

std::vector<Group> Images(const TrainerOptions& options, const model::VelocityModel& model) {
  std::vector<Group> groups;
  for (uint64_t id = 0; id < kGroups; ++id) {
    groups.push_back(ToyGroup(options.sampling, model, id, kMembers, 0));
  }
  return groups;
}

// One row per sample, as a plan would list them.
struct Plan {
  explicit Plan(const std::vector<Group>& groups) : trajectories(groups.size() * kMembers) {
    for (size_t i = 0; i < trajectories.size(); ++i) {
      trajectories[i].group = i / kMembers;
      trajectories[i].trajectory = i % kMembers;
      trajectories[i].rows.emplace_back();
      AppendRows(trajectories[i], refs);
    }
  }
  std::vector<PlannedTrajectory> trajectories;
  std::vector<RowRef> refs;
};

TEST(AnchorTest, APolicyThatHasNotMovedIsNotPulled) {
  const TrainerOptions options = AwmOptionsOf(1);
  const ToyPolicy policy;
  const auto groups = Images(options, policy.current());
  const Plan plan(groups);
  const at::Tensor pull = AnchorPull(options.anchor, 5, policy, groups, plan.refs);
  EXPECT_EQ(pull.sizes(), at::IntArrayRef({kGroups * kMembers}));
  EXPECT_EQ(pull.abs().max().item<double>(), 0);
}

// Moving the velocity by a constant costs its square, whatever the images are.
TEST(AnchorTest, AShiftOfTheFieldCostsItsSquare) {
  const TrainerOptions options = AwmOptionsOf(1);
  ToyPolicy policy;
  const auto groups = Images(options, policy.current());
  const Plan plan(groups);
  constexpr double kShift = .5;
  {
    // v moves by sigma c.
    const at::NoGradGuard no_grad;
    at::Tensor(policy.parameters().Get("level")).add_(kShift);
  }
  AnchorOptions narrow{.weight = 1, .high = kAnchorLow + 1e-7};
  const at::Tensor pull = AnchorPull(narrow, 5, policy, groups, plan.refs);
  for (const double value : {pull.min().item<double>(), pull.max().item<double>()}) {
    EXPECT_NEAR(value, kAnchorLow * kAnchorLow * kShift * kShift, 1e-8);
  }
}

TEST(AnchorTest, LevelsLieInTheRangeAndDifferFromSampleToSample) {
  TrainerOptions options = AwmOptionsOf(1);
  ToyPolicy policy;
  const auto groups = Images(options, policy.current());
  const Plan plan(groups);
  {
    const at::NoGradGuard no_grad;
    at::Tensor(policy.parameters().Get("level")).add_(1);
  }
  // v moved by sigma: the pull is sigma^2.
  const at::Tensor sigma =
      AnchorPull({.weight = 1, .high = .6}, 5, policy, groups, plan.refs).sqrt();
  EXPECT_GE(sigma.min().item<double>(), kAnchorLow - 1e-6);
  EXPECT_LE(sigma.max().item<double>(), .6 + 1e-6);
  EXPECT_GT((sigma.max() - sigma.min()).item<double>(), .1);
}

TEST(AnchorTest, TheGradientIsThatOfFiniteDifferences) {
  const TrainerOptions options = AwmOptionsOf(1);
  ToyPolicy policy;
  const auto groups = Images(options, policy.current());
  const Plan plan(groups);
  at::Tensor mix = policy.parameters().Get("mix");
  {
    const at::NoGradGuard no_grad;
    mix.add_(.3);
  }
  const auto loss = [&] { return AnchorPull(options.anchor, 5, policy, groups, plan.refs).sum(); };
  policy.parameters().ZeroGrad();
  loss().backward();
  const double slope = mix.grad()[1][2].item<double>();
  constexpr double kStep = 1e-2;  // The pull is a square of what is linear in the weight.
  const at::NoGradGuard no_grad;
  mix[1][2] += kStep;
  const double above = loss().item<double>();
  mix[1][2] -= 2 * kStep;
  const double below = loss().item<double>();
  EXPECT_NEAR(slope, (above - below) / (2 * kStep), 1e-3 * std::abs(slope));
}

struct Trained {
  StepResult result;
  at::Tensor weights;
};

Trained OneStep(const TrainerOptions& options) {
  ToyPolicy policy;
  const auto ranks = parallel::MakeSingleRank();
  Trainer trainer(options, policy, *ranks);
  auto result = trainer.Step(LearnerStep(0), Images(options, policy.current()));
  EXPECT_TRUE(result.ok()) << result.status();
  return {*std::move(result), policy.parameters().flat().detach().clone()};
}

// A policy gradient with the same samples: transitions and, as an anchor needs, the final latents.
TrainerOptions GrpoOptionsOf(double anchor) {
  TrainerOptions options = AwmOptionsOf(anchor);
  options.method = MethodKind::kGrpo;
  options.settings = {};
  return options;
}

// Promise: An anchor holds every method. With `method.anchor`, trajectories reach the learner up to
// their final latent, replayed ones included; a group without it is refused. Training stays nearer
// to the reference at the anchor's levels.
TEST(AnchorTest, TrainingStaysNearerToTheReference) {
  for (TrainerOptions options : {AwmOptionsOf(0), GrpoOptionsOf(0)}) {
    options.adamw.learning_rate = 3e-3;
    options.updates = 6;
    options.anchor = {.weight = 1e-9, .high = .7};  // Measured and as good as off.
    const double far = OneStep(options).result.metrics.at("train/anchor_div");
    options.anchor.weight = 100;
    const double near = OneStep(options).result.metrics.at("train/anchor_div");
    EXPECT_GT(far, 0);
    EXPECT_LT(near, .5 * far);
  }
}

// Two rows per image go forward and backward; the anchor adds one of each kind.
TEST(AnchorTest, CostsAreCountedInRows) {
  const double images = kGroups * kMembers;
  const auto bare = OneStep(AwmOptionsOf(0)).result.metrics;
  EXPECT_EQ(bare.at("train/rows_backward"), 2 * images);
  EXPECT_EQ(bare.at("train/rows_forward"), 0);
  const auto anchored = OneStep(AwmOptionsOf(.1)).result.metrics;
  EXPECT_EQ(anchored.at("train/rows_backward"), 3 * images);
  EXPECT_EQ(anchored.at("train/rows_forward"), images);
}

// Where the policy has not moved the ratio is 1, and its gradient that of lp itself.
TEST(AnchorTest, TheFirstUpdateOfAwmIsTheSameWithAndWithoutRatio) {
  TrainerOptions options = AwmOptionsOf(0);
  options.updates = 1;
  const at::Tensor without = OneStep(options).weights;
  options.settings.values["ratio"] = 1;
  EXPECT_LT((OneStep(options).weights - without).abs().max().item<double>(), 1e-6);
}

}  // namespace
}  // namespace oxbow::rl
