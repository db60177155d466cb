// SPDX-License-Identifier: Apache-2.0
// A learner step against its published formulas, written down once more with loops over doubles and
// differentiated by finite differences: replayed heads with tails of either kind, branches of one
// head, stale samples, stored successes in groups that failed and beside the groups, every
// correction, both KL spaces, and one ratio for a whole sample (GSPO). Nothing of core/rl or
// core/flow is used to say what is right.
//
//   mu_i = cx x_i + cv v,   lp_i = mean_D(-(x_{i+1} - mu_i)^2 / 2 S^2) - log S - log sqrt(2 pi)
//   W    = min(exp(lambda sum_{i < kept} (lp_i(old) - lp_i(behaviour))), cap)
//   loss = sum W max(-A r, -A clamp(r)) / B T + beta sum KL / B T
//   of a stored success beside the groups: A = clip((R - p) / sqrt(p (1 - p) + .01), 0, 3)
//                                              min(1, w n / K)
//   of k branches of a stored head: before i_off W / k for W, after it A - mean_k(A) for A
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>
#include <utility>

#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::rl {
namespace {

using Vector = std::vector<double>;

constexpr size_t kDims = kToyDims;
constexpr int kSteps = 10;
constexpr int kTrained = 5;  // Steps 0 .. 4 are stochastic.
constexpr int kKept = 3;     // i_off
constexpr uint64_t kNow = 8, kBefore = 6;
constexpr double kEta = 0.7;
constexpr double kBeta = 0.5;
constexpr double kClip = 5e-3;
constexpr double kCap = 1.01;
// Groups of samples, by id. The third has no variance, and the fourth failed whole.
constexpr uint64_t kLevel = 3, kFailed = 4, kAdded = 10;

// Weights lie flat as level [D], mix [D, D], prompt [D, tokens].
Vector VelocityOf(const Vector& theta, const Vector& x, const Vector& tokens, double sigma) {
  const double* level = theta.data();
  const double* mix = level + kDims;
  const double* prompt = mix + kDims * kDims;
  Vector v(kDims);
  for (size_t d = 0; d < kDims; ++d) {
    v[d] = sigma * level[d];
    for (size_t k = 0; k < kDims; ++k) v[d] += mix[d * kDims + k] * x[k];
    for (size_t k = 0; k < kToyTokens; ++k) v[d] += prompt[d * kToyTokens + k] * tokens[k];
  }
  return v;
}

// Flow-GRPO's step (arXiv:2505.05470, eq. 9).
struct Kernel {
  Kernel(const Vector& sigmas, int step) {
    const double s = sigmas[static_cast<size_t>(step)];
    const double dt = sigmas[static_cast<size_t>(step) + 1] - s;
    std = kEta * std::sqrt(s / (1 - (s == 1 ? sigmas[1] : s)));
    cx = 1 + std * std / (2 * s) * dt;
    cv = (1 + std * std * (1 - s) / (2 * s)) * dt;
    scale = std * std::sqrt(-dt);
  }
  double std, cx, cv, scale;
};

Vector ToVector(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
  return Vector(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
}

struct Case {
  const char* name;
  Correction correction;
  KlSpace kl_space = KlSpace::kVelocity;
  MethodKind method = MethodKind::kGrpo;
  double clip = kClip;
  int in_flight = kSteps;  // From this step on, the policy being trained draws the stale sample.
  bool successes = false;  // Stored ones join a failed group, and train beside the groups.
  bool in_mean = true;     // Whether replayed samples count in the mean of their group.
  bool branches = false;   // The replayed samples of a group go on from one head.
  StepWeight step_weight = StepWeight::kNone;  // kNoise: S over its mean (arXiv:2508.04324).
};

TrainerOptions OptionsOf(const Case& c) {
  TrainerOptions options{
      .sampling = {.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kSteps, 3),
                   .eta = kEta,
                   .sde = std::vector<bool>(kSteps, false)},
      .run_seed = 3,
      .updates = 1};
  for (int i = 0; i < kTrained; ++i) options.sampling.sde[static_cast<size_t>(i)] = true;
  options.method = c.method;
  options.clip_range = c.clip;
  options.correction = c.correction;
  options.weight_cap = kCap;
  options.replayed_in_mean = c.in_mean;
  options.step_weight = c.step_weight;
  options.kept_steps = kKept;
  options.kl.weight = kBeta;
  options.kl.space = c.kl_space;
  options.kl.all_steps = true;
  options.grad_norm_max = 0;
  return options;
}

// Three policies: the one being trained, an older one, and the reference.
struct World {
  explicit World(TrainerOptions o, int switches = kSteps)
      : options(std::move(o)), in_flight(switches) {
    const at::Tensor flat = policy.parameters().flat();
    reference = ToVector(flat);
    older = ToVector(flat + ToyNormal(50, flat.sizes(), 0.04));
    const at::NoGradGuard no_grad;
    policy.parameters().flat().add_(ToyNormal(51, flat.sizes(), 0.04));
    theta = ToVector(policy.parameters().flat());
    const at::Tensor zero = at::zeros_like(flat);
    EXPECT_TRUE(trainer
                    .LoadState({{"adamw.first_moment", zero},
                                {"adamw.second_moment", zero},
                                {"counters", at::tensor(std::vector<int64_t>{kNow, 0})}})
                    .ok());
  }

  double LogProb(const Vector& weights, const Group& group, const Trajectory& trajectory,
                 int i) const {
    const Kernel kernel(options.sampling.sigmas, i);
    const Vector x = ToVector(trajectory.latents[i]), next = ToVector(trajectory.latents[i + 1]);
    return LogProb(weights, kernel, ToVector(group.conditioning.at(model::kPromptTokens)), x, next,
                   options.sampling.sigmas[static_cast<size_t>(i)]);
  }
  static double LogProb(const Vector& weights, const Kernel& kernel, const Vector& tokens,
                        const Vector& x, const Vector& next, double sigma) {
    const Vector v = VelocityOf(weights, x, tokens, sigma);
    double squares = 0;
    for (size_t d = 0; d < kDims; ++d) {
      const double error = next[d] - kernel.cx * x[d] - kernel.cv * v[d];
      squares += error * error / kDims;
    }
    return -squares / (2 * kernel.scale * kernel.scale) - std::log(kernel.scale) -
           0.5 * std::log(2 * std::numbers::pi);
  }

  // A path drawn by `weights_at(step)`; steps that are not stochastic follow the ODE.
  Trajectory Draw(const Group& group, uint32_t index,
                  const std::function<const Vector&(int)>& weights_at,
                  std::vector<bool> sde) const {
    Trajectory trajectory{.index = index,
                          .latents = at::zeros({kSteps + 1, 1, kToySide, kToySide})};
    trajectory.log_prob.assign(kSteps, 0);
    trajectory.behaviour_version.assign(kSteps, kNow);
    trajectory.sde = std::move(sde);
    trajectory.latents[0] = ToyNormal(group.id.value * 100 + index, {1, kToySide, kToySide}, 1);
    for (int i = 0; i < kSteps; ++i) Move(group, trajectory, i, weights_at(i));
    return trajectory;
  }

  // Step i of a path, drawn by `weights`.
  void Move(const Group& group, Trajectory& trajectory, int i, const Vector& weights) const {
    const auto at_step = static_cast<size_t>(i);
    const Vector tokens = ToVector(group.conditioning.at(model::kPromptTokens));
    const Vector x = ToVector(trajectory.latents[i]);
    const double sigma = options.sampling.sigmas[at_step];
    const Vector v = VelocityOf(weights, x, tokens, sigma);
    const Vector noise =
        ToVector(ToyNormal(group.id.value * 1000 + trajectory.index * 50 + at_step, {kToyDims}, 1));
    std::vector<float> next(kDims);
    for (size_t d = 0; d < kDims; ++d) {
      const Kernel kernel(options.sampling.sigmas, i);
      next[d] = static_cast<float>(
          trajectory.sde[at_step] ? kernel.cx * x[d] + kernel.cv * v[d] + kernel.scale * noise[d]
                                  : x[d] + (options.sampling.sigmas[at_step + 1] - sigma) * v[d]);
    }
    trajectory.latents[i + 1] = at::tensor(next).view({1, kToySide, kToySide});
    if (trajectory.sde[at_step]) {
      trajectory.log_prob[at_step] = static_cast<float>(LogProb(weights, group, trajectory, i));
    }
    if (&weights == &older) trajectory.behaviour_version[at_step] = kBefore;
  }

  // Another tail of the same head, drawn by the policy being trained.
  Trajectory Branch(const Group& group, uint32_t index, const Trajectory& of) const {
    Trajectory branch = of;
    branch.index = index;
    branch.latents = of.latents.clone();
    for (int i = kKept; i < kSteps; ++i) Move(group, branch, i, theta);
    return branch;
  }

  Group Empty(uint64_t id) const {
    Group group{.id = GroupId(id), .prompt_id = PromptId(id)};
    group.conditioning = {{model::kPromptTokens, ToyNormal(200 + id, {1, 1, kToyTokens}, 1)}};
    return group;
  }

  // As the buffer has it: the transitions before i_off, and the reward of a picture.
  Trajectory Stored(const Group& group, uint32_t index) const {
    Trajectory stored = Draw(
        group, index, [this](int) -> const Vector& { return older; }, options.sampling.sde);
    stored.latents = stored.latents.narrow(0, 0, kKept + 1).clone();
    stored.reward = 1;
    stored.replayed = true;
    stored.kept_steps = kKept;
    stored.entry_id = EntryId(group.id.value * 10 + index);
    return stored;
  }

  // A group that failed whole with its prompt's stored success, and two successes beside them.
  void Join(std::vector<Group>& groups) const {
    Group failed = Empty(kFailed);
    for (uint32_t s = 0; s < 4; ++s) {
      failed.trajectories.push_back(Draw(
          failed, s, [this](int) -> const Vector& { return theta; }, options.sampling.sde));
    }
    failed.trajectories.push_back(Stored(failed, 4));
    groups.push_back(std::move(failed));
    for (const double rate : {0.25, 0.02}) {  // The second one's advantage is above its limit.
      Group added = Empty(kAdded + groups.size());
      added.trajectories = {Stored(added, 0)};
      added.success_rate = rate;
      groups.insert(groups.begin() + 1, std::move(added));
    }
  }

  // Two fresh samples, a stale one, and two replayed heads: one with a stochastic tail, one
  // without, or two stochastic tails of one head. The last group has no variance.
  std::vector<Group> Groups(bool branches = false) const {
    std::vector<Group> groups;
    const std::vector<bool> whole = options.sampling.sde;
    std::vector<bool> head = whole;
    std::fill(head.begin() + kKept, head.end(), false);
    const auto now = [this](int) -> const Vector& { return theta; };
    const auto before = [this](int i) -> const Vector& { return i < in_flight ? older : theta; };
    const auto mixed = [this](int i) -> const Vector& { return i < kKept ? older : theta; };
    for (uint64_t g = 1; g <= 3; ++g) {
      Group group = Empty(g);
      group.trajectories = {Draw(group, 0, now, whole), Draw(group, 1, now, whole),
                            Draw(group, 2, before, whole), Draw(group, 3, mixed, whole),
                            Draw(group, 4, mixed, head)};
      if (branches) group.trajectories[4] = Branch(group, 4, group.trajectories[3]);
      const Vector rewards = {0.3, -0.1, 0.8, 1.1, -0.6};
      for (size_t s = 0; s < 5; ++s) {
        group.trajectories[s].reward = g == kLevel ? 0.1 : rewards[(s * g) % 5];
        group.trajectories[s].replayed = s >= 3;
        group.trajectories[s].kept_steps = s >= 3 ? kKept : 0;
        group.trajectories[s].entry_id = EntryId(s < 3 ? 0 : g * 10 + (branches ? 3 : s));
      }
      groups.push_back(std::move(group));
    }
    return groups;
  }

  const TrainerOptions options;
  const int in_flight;
  ToyPolicy policy;
  std::unique_ptr<parallel::Ranks> ranks = parallel::MakeSingleRank();
  Trainer trainer{options, policy, *ranks};
  Vector theta, older, reference;
};

// One trained step, with what of it does not depend on the weights being trained.
struct OracleRow {
  size_t trajectory;  // Counted over all groups.
  Kernel kernel;
  Vector tokens, x, next, v_reference;
  double sigma, centre, behaviour, advantage, weight;
};

bool Weighted(Correction correction, bool replayed) {
  return correction == Correction::kSequence || (correction == Correction::kBypass && replayed);
}

double WeightOf(const World& world, const Group& group, const Trajectory& trajectory) {
  double sum = 0;
  for (int i = 0; i < kKept; ++i) {
    sum += world.LogProb(world.theta, group, trajectory, i) -
           trajectory.log_prob[static_cast<size_t>(i)];
  }
  return std::min(std::exp(sum), kCap);
}

// The weight of each trained step: 1 on average.
Vector StepWeightsOf(const World& world) {
  Vector weights(kTrained, 1);
  if (world.options.step_weight == StepWeight::kNone) return weights;
  double sum = 0;
  for (int i = 0; i < kTrained; ++i) {
    sum += weights[static_cast<size_t>(i)] = Kernel(world.options.sampling.sigmas, i).scale;
  }
  for (double& weight : weights) weight *= kTrained / sum;
  return weights;
}

// Advantages of the samples of a group that has variance.
Vector AdvantagesOf(const Group& group, bool in_mean) {
  double mean = 0, variance = 0, all = 0, counted = 0;
  for (const Trajectory& trajectory : group.trajectories) {
    all += trajectory.reward / 5;
    if (trajectory.replayed && !in_mean) continue;
    mean += trajectory.reward;
    ++counted;
  }
  mean /= counted;
  for (const Trajectory& trajectory : group.trajectories)
    variance += std::pow(trajectory.reward - all, 2) / 5;
  Vector advantages;
  for (const Trajectory& trajectory : group.trajectories)
    advantages.push_back((trajectory.reward - mean) / (std::sqrt(variance) + 1e-4));
  return advantages;
}

// K = 2 successes, n = 10 fresh samples with a signal: two groups of three, and one of four.
double AddedAdvantage(double reward, double rate) {
  const double advantage = (reward - rate) / std::sqrt(rate * (1 - rate) + 0.01);
  return std::min(advantage, 3.0);
}

std::vector<OracleRow> RowsOf(const World& world, const std::vector<Group>& groups,
                              bool branches = false) {
  const Correction correction = world.options.correction;
  std::vector<OracleRow> rows;
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::optional<double> rate = groups[g].success_rate;
    if (groups[g].id == GroupId(kLevel)) continue;
    const Vector advantages = rate.has_value()
                                  ? Vector{AddedAdvantage(groups[g].trajectories[0].reward, *rate)}
                                  : AdvantagesOf(groups[g], world.options.replayed_in_mean);
    for (size_t s = 0; s < groups[g].trajectories.size(); ++s) {
      const Trajectory& trajectory = groups[g].trajectories[s];
      const bool stale = s == 2 && groups[g].id != GroupId(kFailed);
      const bool weighted =
          (stale || trajectory.replayed) && Weighted(correction, trajectory.replayed);
      const bool as_drawn =
          correction == Correction::kNaive || (stale && correction == Correction::kBypass);
      // A stale sample has steps before i_off alone, and counts as much as one with all of them.
      // If the policy being trained took it over by then, it is what a replayed one is.
      const bool cut = stale && correction != Correction::kBypass && world.in_flight > kKept;
      const Vector of_step = StepWeightsOf(world);
      const double kept = std::accumulate(of_step.begin(), of_step.begin() + kKept, 0.0);
      const double share = cut ? kTrained / kept : 1;
      for (int i = 0; i < kTrained; ++i) {
        if (!trajectory.sde[static_cast<size_t>(i)]) continue;
        if (cut && i >= kKept) continue;
        if (i + 1 >= trajectory.latents.size(0)) continue;
        const bool drawn_now = trajectory.behaviour_version[static_cast<size_t>(i)] == kNow;
        OracleRow row{
            .trajectory = g * 5 + s,
            .kernel = Kernel(world.options.sampling.sigmas, i),
            .tokens = ToVector(groups[g].conditioning.at(model::kPromptTokens)),
            .x = ToVector(trajectory.latents[i]),
            .next = ToVector(trajectory.latents[i + 1]),
            .sigma = world.options.sampling.sigmas[static_cast<size_t>(i)],
            .centre = as_drawn || drawn_now
                          ? static_cast<double>(trajectory.log_prob[static_cast<size_t>(i)])
                          : world.LogProb(world.theta, groups[g], trajectory, i),
            .behaviour = trajectory.log_prob[static_cast<size_t>(i)],
            .advantage = advantages[s],
            .weight = of_step[static_cast<size_t>(i)] * share *
                      (weighted ? WeightOf(world, groups[g], trajectory) : 1)};
        const bool branch = branches && trajectory.replayed;
        if (branch && i < kKept) row.weight /= 2;
        if (branch && i >= kKept) row.advantage -= (advantages[3] + advantages[4]) / 2;
        row.v_reference = VelocityOf(world.reference, row.x, row.tokens, row.sigma);
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

double KlOf(const OracleRow& row, const Vector& weights, KlSpace space) {
  const Vector v = VelocityOf(weights, row.x, row.tokens, row.sigma);
  double kl = 0;
  for (size_t d = 0; d < kDims; ++d) {
    const double difference = v[d] - row.v_reference[d];
    const double spread = space == KlSpace::kMean ? row.kernel.std : row.kernel.scale;
    const double of_means = row.kernel.cv * difference / spread;
    kl += (space == KlSpace::kVelocity ? difference * difference : of_means * of_means / 2) / kDims;
  }
  return kl;
}

// B: samples of the group without variance count. Stored successes beside the groups do not.
double SamplesOf(bool successes) { return successes ? 20 : 15; }

struct Losses {
  double policy = 0;
  double kl = 0;
};

// Parts of a row's ratios: its log-probs, or for GSPO the means of its sample's.
struct LogProbs {
  double now = 0, centre = 0, behaviour = 0;
};

std::vector<LogProbs> LogProbsOf(const std::vector<OracleRow>& rows, const Vector& weights,
                                 MethodKind method) {
  std::vector<LogProbs> own;
  std::map<size_t, std::pair<LogProbs, double>> sums;  // By sample, with the count.
  for (const OracleRow& row : rows) {
    own.push_back({World::LogProb(weights, row.kernel, row.tokens, row.x, row.next, row.sigma),
                   row.centre, row.behaviour});
    auto& [sum, count] = sums[row.trajectory];
    sum = {sum.now + own.back().now, sum.centre + row.centre, sum.behaviour + row.behaviour};
    ++count;
  }
  if (method == MethodKind::kGrpo) return own;
  std::vector<LogProbs> means;
  for (const OracleRow& row : rows) {
    const auto& [sum, count] = sums.at(row.trajectory);
    means.push_back({sum.now / count, sum.centre / count, sum.behaviour / count});
  }
  return means;
}

Losses LossesAt(const std::vector<OracleRow>& rows, const Vector& weights, const Case& c) {
  Losses losses;
  const double all = SamplesOf(c.successes) * kTrained;
  const std::vector<LogProbs> log_probs = LogProbsOf(rows, weights, c.method);
  const bool off_policy = c.correction == Correction::kBehaviourClip;
  for (size_t i = 0; i < rows.size(); ++i) {
    const OracleRow& row = rows[i];
    const auto& [now, centre, behaviour] = log_probs[i];
    const double ratio = std::exp(now - (off_policy ? behaviour : centre));
    const double middle = off_policy ? std::exp(centre - behaviour) : 1;
    for (const double edge : {middle - c.clip, middle + c.clip}) {
      EXPECT_GT(std::abs(ratio - edge), 2e-5) << "a kink is too near for differences";
    }
    const double clipped = std::min(std::max(ratio, middle - c.clip), middle + c.clip);
    losses.policy += row.weight * std::max(-row.advantage * ratio, -row.advantage * clipped) / all;
    losses.kl += KlOf(row, weights, c.kl_space) / all;
  }
  return losses;
}

Vector GradientAt(const std::vector<OracleRow>& rows, const Vector& weights, const Case& c) {
  constexpr double kNudge = 1e-5;
  Vector gradient;
  for (size_t p = 0; p < weights.size(); ++p) {
    Vector up = weights, down = weights;
    up[p] += kNudge;
    down[p] -= kNudge;
    const Losses above = LossesAt(rows, up, c), below = LossesAt(rows, down, c);
    gradient.push_back((above.policy - below.policy + kBeta * (above.kl - below.kl)) /
                       (2 * kNudge));
  }
  return gradient;
}

class TrainerOracleTest : public ::testing::TestWithParam<Case> {};

// Promise: A step belongs to the weights that took it.
// Promise: A step is its formula. Loss, gradient and weights W of a step equal those computed
// separately in float64. The test covers fresh, stale and replayed samples, and those that new
// weights took over before, at and after i_off, every correction and all three KL spaces, branches
// of one head, weights of steps, and stored successes in groups that failed and beside the groups.
// Under a window that moves each step is a step of that window, whatever its steps weigh.
TEST_P(TrainerOracleTest, LossGradientAndWeightsFollowTheFormulas) {
  World world(OptionsOf(GetParam()), GetParam().in_flight);
  std::vector<Group> groups = world.Groups(GetParam().branches);
  if (GetParam().successes) world.Join(groups);
  const std::vector<OracleRow> rows = RowsOf(world, groups, GetParam().branches);
  const Losses losses = LossesAt(rows, world.theta, GetParam());
  const Vector gradient = GradientAt(rows, world.theta, GetParam());

  const auto result = world.trainer.Step(LearnerStep(4), groups);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->metrics.at("train/policy_loss"), losses.policy, 1e-6);
  EXPECT_NEAR(result->metrics.at("train/kl_div"), losses.kl, 1e-5 * losses.kl);
  EXPECT_NEAR(result->metrics.at("train/kl_loss"), kBeta * losses.kl, 1e-5 * losses.kl);
  EXPECT_EQ(result->used.size(), GetParam().successes ? 7u : 4u);

  // After one update Adam's first moment is (1 - beta1) times the gradient.
  const at::Tensor moment = world.trainer.State()->at("adamw.first_moment");
  const at::Tensor want = at::tensor(gradient, at::kDouble) * (1 - world.options.adamw.beta1);
  const double error = (moment.to(at::kDouble) - want).norm().item<double>();
  EXPECT_LT(error, 1e-4 * want.norm().item<double>());

  if (GetParam().correction == Correction::kNaive) {
    const double clipped = result->metrics.at("train/clip_frac_replay");
    EXPECT_TRUE(clipped > 0 && clipped < 1) << "ratios on both sides of the clip: " << clipped;
  }
  if (result->metrics.count("train/iw_mean") == 0) return;
  const double capped = result->metrics.at("train/iw_trunc_frac");
  EXPECT_TRUE(capped > 0 && capped < 1) << "weights on both sides of the cap: " << capped;
}

INSTANTIATE_TEST_SUITE_P(
    Methods, TrainerOracleTest,
    ::testing::Values(
        Case{"Sequence", Correction::kSequence},
        Case{"SequenceMeanSpaceKl", Correction::kSequence, KlSpace::kMean},
        Case{"SequenceTransitionKl", Correction::kSequence, KlSpace::kTransition},
        Case{.name = "InFlightBeforeTheCut", .correction = Correction::kSequence, .in_flight = 2},
        Case{.name = "InFlightAtTheCut", .correction = Correction::kSequence, .in_flight = kKept},
        Case{.name = "InFlightAfterTheCut", .correction = Correction::kSequence, .in_flight = 4},
        Case{.name = "InFlightNaive", .correction = Correction::kNaive, .in_flight = 2},
        Case{.name = "InFlightBypass", .correction = Correction::kBypass, .in_flight = 2},
        Case{.name = "Successes", .correction = Correction::kSequence, .successes = true},
        Case{.name = "SuccessesOutsideTheMean",
             .correction = Correction::kSequence,
             .successes = true,
             .in_mean = false},
        Case{.name = "SuccessesNaive", .correction = Correction::kNaive, .successes = true},
        Case{.name = "StepWeights",
             .correction = Correction::kSequence,
             .step_weight = StepWeight::kNoise},
        Case{.name = "Branches", .correction = Correction::kSequence, .branches = true},
        Case{.name = "BranchesNaive", .correction = Correction::kNaive, .branches = true},
        Case{.name = "BranchesOutsideTheMean",
             .correction = Correction::kSequence,
             .in_mean = false,
             .branches = true},
        Case{"None", Correction::kNone}, Case{"Naive", Correction::kNaive},
        Case{"Bypass", Correction::kBypass}, Case{"BehaviourClip", Correction::kBehaviourClip},
        Case{.name = "Gspo", .correction = Correction::kSequence, .method = MethodKind::kGspo},
        Case{.name = "GspoNaive",
             .correction = Correction::kNaive,
             .method = MethodKind::kGspo,
             .clip = 2e-3}),
    [](const auto& info) { return std::string(info.param.name); });

// Promise: A step is its formula.
TEST(TrainerKlTest, OneRandomStepPerSampleIsUnbiased) {
  TrainerOptions options = OptionsOf({"", Correction::kSequence});
  options.kl.all_steps = false;
  World world(options);
  const std::vector<Group> groups = world.Groups();
  std::map<size_t, Vector> of_sample;
  for (const OracleRow& row : RowsOf(world, groups)) {
    of_sample[row.trajectory].push_back(KlOf(row, world.theta, KlSpace::kVelocity));
  }
  double expected = 0;
  for (const auto& [trajectory, values] : of_sample) {
    for (const double value : values) expected += value / static_cast<double>(values.size());
  }
  expected /= SamplesOf(/*successes=*/false);

  constexpr int kLearnerSteps = 300;
  double sum = 0, squares = 0;
  for (int step = 0; step < kLearnerSteps; ++step) {
    World fresh(options);
    const auto result = fresh.trainer.Step(LearnerStep(static_cast<uint64_t>(step)), groups);
    ASSERT_TRUE(result.ok()) << result.status();
    const double kl = result->metrics.at("train/kl_div");
    sum += kl;
    squares += kl * kl;
  }
  const double mean = sum / kLearnerSteps;
  const double standard_error = std::sqrt((squares / kLearnerSteps - mean * mean) / kLearnerSteps);
  EXPECT_GT(standard_error, 0) << "the step must vary";
  EXPECT_LT(standard_error, 0.01 * mean) << "the mean must be known well enough to compare";
  EXPECT_NEAR(mean, expected, 4 * standard_error);
}

}  // namespace
}  // namespace oxbow::rl
