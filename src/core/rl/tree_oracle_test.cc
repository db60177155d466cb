// SPDX-License-Identifier: Apache-2.0
// A learner step on trees against its formulas in float64, differentiated by finite differences.
// Samples share an edge where their latents have equal bits. Nothing of core/rl or
// of the trees' code is used to say what is right.
//
//   R(n) = mean of the rewards below n,  A(n) = (R(n) - mean_t R) / (std_t R + 1e-4)
//   loss = mean over edges of max(-A r, -A clamp(r)) + beta (v - v_ref)^2
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>

#include "core/parallel/share.h"
#include "core/rl/trainer.h"
#include "tests/testing/thread_ranks.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::rl {
namespace {

using Vector = std::vector<double>;

constexpr int kSteps = 6;
constexpr int kTrained = 4;  // Steps 0 .. 3 are stochastic.
constexpr int kSize = 8;
constexpr double kClip = 2e-3;
constexpr double kBeta = 0.3;
constexpr double kEta = 0.7;

TrainerOptions Options() {
  TrainerOptions options;
  options.sampling = {.sigmas = flow::SigmaGrid(flow::ScheduleKind::kLinspace, kSteps, 3),
                      .eta = kEta,
                      .sde = {true, true, true, true, false, false},
                      .splits = {.steps = {0, 2, 3}, .width = 2}};
  options.run_seed = 3;
  options.updates = 1;
  options.clip_range = kClip;
  options.kl = {.weight = kBeta, .all_steps = true};
  options.grad_norm_max = 0;
  return options;
}

// Groups of one tree each, by the policy as it is. Stored log-probs are off by a little, the same
// for all samples of an edge, so that ratios lie on both sides of the clip.
std::vector<Group> Groups(const flow::SamplingSpec& spec, const model::VelocityModel& model,
                          uint64_t first, uint64_t version, int count) {
  std::vector<Group> groups;
  for (uint64_t g = first; g < first + static_cast<uint64_t>(count); ++g) {
    Group group = ToyGroup(spec, model, g, kSize, version);
    for (Trajectory& leaf : group.trajectories) {
      for (int i = 0; i < kTrained; ++i) {
        const double mark = leaf.latents[i + 1].to(at::kDouble).sum().item<double>();
        leaf.log_prob[static_cast<size_t>(i)] += static_cast<float>(4e-3 * std::sin(40 * mark));
      }
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

Vector ToVector(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
  return Vector(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
}

struct Edge {
  Vector x, next, tokens;
  int step = 0;
  double centre = 0;  // The stored log-prob.
  double reward = 0;  // The node's.
  double advantage = 0;
};

// The distinct transitions of a group at a step, with the mean reward of the samples that take
// them.
std::vector<Edge> EdgesOf(const Group& group, int step) {
  std::map<Vector, std::vector<const Trajectory*>> nodes;
  for (const Trajectory& leaf : group.trajectories) {
    nodes[ToVector(leaf.latents[step + 1])].push_back(&leaf);
  }
  std::vector<Edge> edges;
  double mean = 0;
  for (const auto& [next, leaves] : nodes) {
    Edge edge{.x = ToVector(leaves[0]->latents[step]),
              .next = next,
              .tokens = ToVector(group.conditioning.at(model::kPromptTokens)),
              .step = step,
              .centre = leaves[0]->log_prob[static_cast<size_t>(step)]};
    for (const Trajectory* leaf : leaves) {
      edge.reward += leaf->reward / static_cast<double>(leaves.size());
    }
    mean += edge.reward / static_cast<double>(nodes.size());
    edges.push_back(std::move(edge));
  }
  double variance = 0;
  for (const Edge& edge : edges) {
    variance += std::pow(edge.reward - mean, 2) / static_cast<double>(edges.size());
  }
  for (Edge& edge : edges) edge.advantage = (edge.reward - mean) / (std::sqrt(variance) + 1e-4);
  return edges;
}

// Weights lie flat as level [D], mix [D, D], prompt [D, tokens].
Vector VelocityOf(const Vector& theta, const Edge& edge, double sigma) {
  const double* level = theta.data();
  const double* mix = level + kToyDims;
  const double* prompt = mix + kToyDims * kToyDims;
  Vector v(kToyDims);
  for (size_t d = 0; d < kToyDims; ++d) {
    v[d] = sigma * level[d];
    for (size_t k = 0; k < kToyDims; ++k) v[d] += mix[d * kToyDims + k] * edge.x[k];
    for (size_t k = 0; k < kToyTokens; ++k) v[d] += prompt[d * kToyTokens + k] * edge.tokens[k];
  }
  return v;
}

double LogProb(const std::vector<double>& sigmas, const Edge& edge, const Vector& v) {
  const double s = sigmas[static_cast<size_t>(edge.step)];
  const double dt = sigmas[static_cast<size_t>(edge.step) + 1] - s;
  const double std = kEta * std::sqrt(s / (1 - (s == 1 ? sigmas[1] : s)));
  const double scale = std * std::sqrt(-dt);
  double squares = 0;
  for (size_t d = 0; d < kToyDims; ++d) {
    const double mean = (1 + std * std / (2 * s) * dt) * edge.x[d] +
                        (1 + std * std * (1 - s) / (2 * s)) * dt * v[d];
    squares += std::pow(edge.next[d] - mean, 2) / kToyDims;
  }
  return -squares / (2 * scale * scale) - std::log(scale) - .5 * std::log(2 * std::numbers::pi);
}

struct Losses {
  double policy = 0, kl = 0;
  int clipped = 0;
};

Losses LossesAt(const std::vector<Edge>& edges, const std::vector<double>& sigmas,
                const Vector& theta, const Vector& reference) {
  Losses losses;
  for (const Edge& edge : edges) {
    const double sigma = sigmas[static_cast<size_t>(edge.step)];
    const Vector v = VelocityOf(theta, edge, sigma);
    const Vector v_reference = VelocityOf(reference, edge, sigma);
    const double ratio = std::exp(LogProb(sigmas, edge, v) - edge.centre);
    const double limited = std::min(std::max(ratio, 1 - kClip), 1 + kClip);
    losses.clipped += ratio != limited;
    const double share = 1 / static_cast<double>(edges.size());
    losses.policy += share * std::max(-edge.advantage * ratio, -edge.advantage * limited);
    for (size_t d = 0; d < kToyDims; ++d) {
      losses.kl += share * std::pow(v[d] - v_reference[d], 2) / kToyDims;
    }
  }
  return losses;
}

// Promise: Trees share steps and change no bit.
TEST(TreeOracleTest, LossAndGradientAreTheMeanOverEdges) {
  const TrainerOptions options = Options();
  const std::vector<double>& sigmas = options.sampling.sigmas;
  ToyPolicy policy;
  const Vector reference = ToVector(policy.parameters().flat());
  {
    const at::NoGradGuard no_grad;
    policy.parameters().flat().add_(ToyNormal(51, policy.parameters().flat().sizes(), 0.04));
  }
  const Vector theta = ToVector(policy.parameters().flat());
  const auto ranks = parallel::MakeSingleRank();
  Trainer trainer(options, policy, *ranks);
  const std::vector<Group> groups = Groups(options.sampling, policy.current(), 1, 0, 3);
  std::vector<Edge> edges;
  for (const Group& group : groups) {
    for (int step = 0; step < kTrained; ++step) {
      for (Edge& edge : EdgesOf(group, step)) edges.push_back(std::move(edge));
    }
  }
  ASSERT_EQ(edges.size(), 3u * (2 + 2 + 4 + 8)) << "2 nodes of x_1 and x_2, 4 of x_3, 8 of x_4";
  const Losses losses = LossesAt(edges, sigmas, theta, reference);
  EXPECT_TRUE(losses.clipped > 4 && losses.clipped < 44) << losses.clipped;
  Vector gradient;
  for (size_t p = 0; p < theta.size(); ++p) {
    constexpr double kNudge = 1e-6;
    Vector up = theta, down = theta;
    up[p] += kNudge;
    down[p] -= kNudge;
    const Losses above = LossesAt(edges, sigmas, up, reference);
    const Losses below = LossesAt(edges, sigmas, down, reference);
    gradient.push_back((above.policy - below.policy + kBeta * (above.kl - below.kl)) /
                       (2 * kNudge));
  }

  const auto result = trainer.Step(LearnerStep(0), groups);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->metrics.at("train/policy_loss"), losses.policy, 1e-6);
  EXPECT_NEAR(result->metrics.at("train/kl_div"), losses.kl, 1e-5 * losses.kl);
  EXPECT_EQ(result->metrics.at("train/rows_backward"), static_cast<double>(edges.size()));
  const at::Tensor moment = trainer.State()->at("adamw.first_moment");
  const at::Tensor want = at::tensor(gradient, at::kDouble) * (1 - options.adamw.beta1);
  EXPECT_LT((moment.to(at::kDouble) - want).norm().item<double>(),
            1e-4 * want.norm().item<double>());
}

// Weights after some steps of several updates, on `ranks` ranks.
at::Tensor Trained(int ranks, BranchPruning pruning) {
  std::vector<at::Tensor> weights(static_cast<size_t>(ranks));
  parallel::ThreadWorld(ranks).Run([&](parallel::Ranks& world) {
    TrainerOptions options = Options();
    options.updates = 2;
    options.deterministic = true;
    options.branch.pruning = pruning;
    options.branch.pruned_steps = {1};
    ToyPolicy policy;
    Trainer trainer(options, policy, world);
    for (uint64_t step = 0; step < 4; ++step) {
      std::vector<Group> groups = Groups(options.sampling, policy.current(), step * 10,
                                         trainer.version().value, /*count=*/6);
      groups[2].trajectories[0].reward_failed = true;
      const parallel::Share own = parallel::ShareOf(groups.size(), world.rank(), world.size());
      for (size_t g = 0; g < groups.size(); ++g) {
        if (own.Has(g)) continue;
        for (Trajectory& leaf : groups[g].trajectories) leaf.latents = leaf.latents.to(at::kMeta);
      }
      const auto result = trainer.Step(LearnerStep(step), groups);
      ASSERT_TRUE(result.ok()) << result.status();
    }
    weights[static_cast<size_t>(world.rank())] = policy.parameters().flat().detach().clone();
  });
  for (const at::Tensor& other : weights) EXPECT_TRUE(at::equal(other, weights[0]));
  return weights[0];
}

// Promise: Trees share steps and change no bit.
TEST(TreeOracleTest, WeightsHaveTheSameBitsForEveryNumberOfRanks) {
  for (const BranchPruning pruning : {BranchPruning::kNone, BranchPruning::kExtremes}) {
    const at::Tensor alone = Trained(1, pruning);
    for (const int ranks : {2, 3}) EXPECT_TRUE(at::equal(Trained(ranks, pruning), alone)) << ranks;
  }
}

}  // namespace
}  // namespace oxbow::rl
