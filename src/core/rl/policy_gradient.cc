// SPDX-License-Identifier: Apache-2.0
#include "core/rl/policy_gradient.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "core/flow/sampler.h"
#include "core/flow/window.h"
#include "core/model/policy.h"
#include "core/rl/loss_weight.h"
#include "core/rl/penalties.h"
#include "core/rl/rank_training.h"

namespace oxbow::rl {
namespace {

std::vector<int> StochasticSteps(const flow::SamplingSpec& spec) {
  std::vector<int> steps;
  for (int i = 0; i < spec.steps(); ++i) {
    if (flow::KernelAt(spec, i).scale > 0) steps.push_back(i);
  }
  return steps;
}

int StaleSteps(const TrainerOptions& options) {
  return options.kept_steps > 0 ? options.kept_steps
                                : flow::KeptSteps(options.sampling, options.kept_kc_max);
}

// Dies where a sample does not fit the spec: its receiver has validated it.
void CheckShape(const Trajectory& trajectory, size_t steps) {
  OXBOW_CHECK(trajectory.sde.size() == steps && trajectory.log_prob.size() == steps &&
              trajectory.behaviour_version.size() == steps)
      << "sample " << trajectory.index << " does not have " << steps << " steps";
}

bool HasTransition(const Trajectory& trajectory, int step) {
  return step >= trajectory.first_latent &&
         step + 1 - trajectory.first_latent < trajectory.latents.size(0);
}

Origin OriginOf(const Trajectory& trajectory, const std::vector<int>& steps,
                PolicyVersion version) {
  if (trajectory.replayed) return Origin::kReplay;
  const bool stale = std::any_of(steps.begin(), steps.end(), [&](int i) {
    return trajectory.behaviour_version[static_cast<size_t>(i)] != version.value;
  });
  return stale ? Origin::kStale : Origin::kFresh;
}

// Versions of the policies that drew what the sample trains: the oldest and the mean.
void DateBack(const Trajectory& trajectory, PlannedTrajectory& planned) {
  double sum = 0;
  double rows = 0;
  planned.oldest = std::numeric_limits<double>::infinity();
  for (const PlannedRow& row : planned.rows) {
    if (!row.trained) continue;
    const auto drawn =
        static_cast<double>(trajectory.behaviour_version[static_cast<size_t>(row.step)]);
    planned.oldest = std::min(planned.oldest, drawn);
    sum += drawn;
    ++rows;
  }
  planned.drawn = sum / rows;
}

// Leaves to compute what W reads, and, unless velocities are kept for it, an update after the
// first.
void LeaveToThePasses(TrainingPlan& plan, bool keeps_velocities) {
  std::vector<bool> first(plan.trajectories.size());
  for (const size_t s : plan.updates.front()) first[s] = true;
  for (size_t s = 0; s < first.size(); ++s) {
    for (PlannedRow& row : plan.trajectories[s].rows) {
      if (!row.needs_old || row.in_weight) continue;
      row.old_in_pass = row.trained && (first[s] || keeps_velocities);
      row.needs_old = row.trained && !row.old_in_pass;
    }
  }
}

bool Weighs(Correction correction) {
  return correction == Correction::kSequence || correction == Correction::kBypass;
}

}  // namespace

PolicyGradient::PolicyGradient(const TrainerOptions& options, const model::Policy& policy,
                               parallel::Ranks& ranks)
    : Method(options, policy, ranks),
      steps_(StochasticSteps(options.sampling)),
      weights_(StepWeights(options.step_weight, options.sampling)) {}

// A replayed head has the steps of the window it was drawn with; the denominator is of this one.
int PolicyGradient::RowsPerSample(LearnerStep step) const {
  size_t all = steps_.size();
  if (options_.window.has_value()) {
    all = flow::WindowAt(*options_.window, options_.run_seed, step.value).size();
  }
  return std::max(1, static_cast<int>(options_.step_fraction * static_cast<double>(all)));
}

// 1 on average over the steps of the window that the learner step has, so that the learning rate
// does not move with the window. A head that was stored under another window has its own steps for
// it.
std::vector<double> PolicyGradient::WeightsFor(LearnerStep step,
                                               const Trajectory& trajectory) const {
  if (!options_.window.has_value()) return weights_;
  flow::SamplingSpec spec = options_.sampling;
  spec.sde = flow::StepFlags(flow::WindowAt(*options_.window, options_.run_seed, step.value),
                             spec.steps());
  const bool inside = std::all_of(steps_.begin(), steps_.end(), [&](int i) {
    const auto at_step = static_cast<size_t>(i);
    return !trajectory.sde[at_step] || spec.sde[at_step];
  });
  if (!inside) spec.sde = trajectory.sde;
  return StepWeights(options_.step_weight, spec);
}

PlannedTrajectory PolicyGradient::Plan(LearnerStep step, PolicyVersion version, const Group& group,
                                       const Trajectory& trajectory) const {
  CheckShape(trajectory, static_cast<size_t>(options_.sampling.steps()));
  PlannedTrajectory planned{.origin = OriginOf(trajectory, steps_, version)};
  const bool bypass =
      options_.correction == Correction::kBypass && planned.origin == Origin::kStale;
  const bool recompute = options_.correction != Correction::kNaive && !bypass;
  const int head = trajectory.replayed ? trajectory.kept_steps : StaleSteps(options_);
  planned.weighted = planned.origin != Origin::kFresh && !bypass && Weighs(options_.correction);
  // Weights that changed in flight may have become these before i_off: then the tail is exact.
  const bool exact_tail = std::all_of(steps_.begin(), steps_.end(), [&](int i) {
    const auto at_step = static_cast<size_t>(i);
    return i < head || !trajectory.sde[at_step] ||
           trajectory.behaviour_version[at_step] == version.value;
  });
  const std::vector<double> weights = WeightsFor(step, trajectory);
  for (const int i : steps_) {
    const auto at_step = static_cast<size_t>(i);
    if (!trajectory.sde[at_step] || !HasTransition(trajectory, i)) continue;
    const bool on_policy = trajectory.behaviour_version[at_step] == version.value;
    if (planned.origin == Origin::kStale && !bypass && i >= head && !exact_tail) continue;
    planned.rows.push_back({.step = i,
                            .sigma = options_.sampling.sigmas[at_step],
                            .weight = weights[at_step],
                            .on_policy = on_policy,
                            .in_weight = planned.weighted && (i < head || !on_policy),
                            .needs_old = on_policy ? options_.recompute_on_policy : recompute,
                            .log_prob_behaviour = trajectory.log_prob[at_step],
                            .log_prob_old = trajectory.log_prob[at_step]});
  }
  if (planned.rows.empty()) return planned;
  ThinOut(step, group, trajectory, planned);
  DateBack(trajectory, planned);
  if (planned.origin == Origin::kStale) FillUp(step, planned);
  return planned;
}

// A sample that lost steps to i_off counts as much as a whole one: the loss divides by the rows of
// whole samples, whose weights are 1 on average, and the learning rate must not move with
// staleness.
void PolicyGradient::FillUp(LearnerStep step, PlannedTrajectory& planned) const {
  int trained = 0;
  double sum = 0;
  for (const PlannedRow& row : planned.rows) {
    if (!row.trained) continue;
    ++trained;
    sum += row.weight;
  }
  const int whole = RowsPerSample(step);
  if (trained >= whole || sum <= 0) return;
  for (PlannedRow& row : planned.rows) row.weight *= whole / sum;
}

// Leaves RowsPerSample rows to train, drawn from all; the others only weigh.
void PolicyGradient::ThinOut(LearnerStep step, const Group& group, const Trajectory& trajectory,
                             PlannedTrajectory& planned) const {
  const auto wanted = static_cast<size_t>(RowsPerSample(step));
  if (planned.rows.size() <= wanted) return;
  RandomStream stream({.seed = options_.run_seed,
                       .group = group.id.value,
                       .sample = trajectory.index,
                       .step = kTrainingTime});
  std::vector<size_t> order(planned.rows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.NextBelow(i)]);
  for (size_t i = wanted; i < order.size(); ++i) planned.rows[order[i]].trained = false;
}

// Must come before the first update: after it pi_old exists no more.
void PolicyGradient::ScoreUnderOldPolicy(TrainingPlan& plan, const std::vector<Group>& groups,
                                         const std::function<bool()>& interrupted) const {
  const at::NoGradGuard no_grad;
  std::vector<RowRef> wanted;
  for (PlannedTrajectory& trajectory : plan.trajectories) AppendRows(trajectory, wanted);
  const std::vector<bool> own = OwnOf(groups);
  std::erase_if(wanted,
                [&](const RowRef& ref) { return !ref.row->needs_old || !own[ref.address.group]; });
  const size_t rows_max = options_.RowsPerForward();
  for (size_t begin = 0; begin < wanted.size() && !interrupted(); begin += rows_max) {
    const size_t end = std::min(begin + rows_max, wanted.size());
    const std::vector<RowRef> part(wanted.begin() + static_cast<std::ptrdiff_t>(begin),
                                   wanted.begin() + static_cast<std::ptrdiff_t>(end));
    const RowBatch batch = GatherTransitions(groups, part);
    const at::Tensor v = policy_.current().Velocity(batch.x, batch.sigma, batch.conditioning);
    const at::Tensor scores = ScoreRows(options_.sampling, batch, v).to(at::kCPU).contiguous();
    const float* value = scores.data_ptr<float>();
    for (const RowRef& ref : part) ref.row->log_prob_old = *value++;
  }
}

SequenceWeight PolicyGradient::WeightOf(const PlannedTrajectory& planned) const {
  std::vector<double> old;
  std::vector<double> behaviour;
  for (const PlannedRow& row : planned.rows) {
    if (!row.in_weight) continue;
    old.push_back(row.log_prob_old);
    behaviour.push_back(row.log_prob_behaviour);
  }
  return ComputeSequenceWeight(old, behaviour, options_.weight_cap);
}

// Each rank weighs its own samples; then all know all weights, in plan order. A rejected sample
// stays in the denominator; its rows are not trained.
absl::StatusOr<Preparation> PolicyGradient::Prepare(LearnerStep step, TrainingPlan& plan,
                                                    const std::vector<Group>& groups,
                                                    const std::function<bool()>& interrupted) {
  LeaveToThePasses(plan, NeedsOldVelocities());
  ScoreUnderOldPolicy(plan, groups, interrupted);
  const std::vector<bool> own = OwnOf(groups);
  Preparation prepared;
  for (const PlannedTrajectory& planned : plan.trajectories) {
    if (!planned.weighted) continue;
    prepared.weights.emplace_back();
    if (!own[planned.group]) continue;
    prepared.weights.back() = WeightOf(planned);
  }
  OXBOW_RETURN_IF_ERROR(ShareWeights(ranks_, prepared.weights));
  auto weight = prepared.weights.begin();
  for (PlannedTrajectory& planned : plan.trajectories) {
    const Trajectory& trajectory = groups[planned.group].trajectories[planned.trajectory];
    if (planned.weighted) {
      planned.weight = weight->weight;
      if (weight->evict && trajectory.replayed) prepared.evict.push_back(trajectory.entry_id);
      ++weight;
    }
    if (trajectory.replayed && planned.weight > 0) prepared.used.push_back(trajectory.entry_id);
  }
  if (NeedsOldVelocities()) KeepVelocities(step, plan, groups, interrupted);
  return prepared;
}

RowBatch PolicyGradient::Gather(LearnerStep, const std::vector<Group>& groups,
                                const std::vector<RowRef>& refs) const {
  return GatherTransitions(groups, refs);
}

at::Tensor PolicyGradient::KernelColumn(const RowBatch& batch,
                                        double (*value)(const flow::StepKernel&)) const {
  std::vector<float> values;
  for (const int i : batch.steps) {
    values.push_back(static_cast<float>(value(flow::KernelAt(options_.sampling, i))));
  }
  return at::tensor(values, at::kFloat);
}

at::Tensor PolicyGradient::OldLogProbs(const RowBatch& batch, const std::vector<RowRef>& refs,
                                       const at::Tensor& v) const {
  const at::Tensor known =
      Column(refs, [](const RowRef& r) -> double { return r.row->log_prob_old; });
  const auto in_pass = [](const RowRef& r) { return r.row->old_in_pass; };
  if (std::none_of(refs.begin(), refs.end(), in_pass)) return known;
  const at::Tensor here =
      Column(refs, [](const RowRef& r) -> double { return r.row->old_in_pass ? 1 : 0; });
  const at::Tensor scores = ScoreRows(options_.sampling, batch, VelocityBeforeStep(refs, v));
  return at::where(here > 0, scores, known);
}

at::Tensor PolicyGradient::Weights(const std::vector<RowRef>& refs) {
  return Column(refs, [](const RowRef& r) { return r.trajectory->weight * r.row->weight; });
}

double PolicyGradient::KlScaleOf(const PlannedRow& row) const {
  return KlScale(options_.kl.space, flow::KernelAt(options_.sampling, row.step));
}

}  // namespace oxbow::rl
