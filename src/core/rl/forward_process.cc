// SPDX-License-Identifier: Apache-2.0
#include "core/rl/forward_process.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/model/policy.h"

namespace oxbow::rl {
namespace {

// AWM's ELBO scale of the KL: the std of Flow-GRPO's sampler at eta .7.
constexpr double kElboEta = 0.7;
constexpr double kElboTimeMax = 0.99;

void CheckFinalLatent(const Trajectory& trajectory, int steps) {
  OXBOW_CHECK(trajectory.latents.defined() &&
              trajectory.first_latent + trajectory.latents.size(0) == steps + 1)
      << "sample " << trajectory.index << " does not end at its image x_" << steps;
}

// [R] of rows of samples with K rows each: every row gets its sample's mean.
at::Tensor SampleMeans(const at::Tensor& rows, int64_t pairs) {
  return rows.view({-1, pairs}).mean(1, /*keepdim=*/true).expand({-1, pairs}).reshape({-1});
}

std::vector<EntryId> ReplayedEntries(const TrainingPlan& plan, const std::vector<Group>& groups) {
  std::vector<EntryId> entries;
  for (const PlannedTrajectory& planned : plan.trajectories) {
    const Trajectory& trajectory = groups[planned.group].trajectories[planned.trajectory];
    if (trajectory.replayed) entries.push_back(trajectory.entry_id);
  }
  return entries;
}

}  // namespace

ForwardProcess::ForwardProcess(const TrainerOptions& options, const model::Policy& policy,
                               parallel::Ranks& ranks)
    : Method(options, policy, ranks), pairs_(PairCount(options.times, options.sampling.steps())) {}

int ForwardProcess::RowsPerSample(LearnerStep) const { return pairs_; }

PlannedTrajectory ForwardProcess::Plan(LearnerStep step, PolicyVersion version, const Group& group,
                                       const Trajectory& trajectory) const {
  CheckFinalLatent(trajectory, options_.sampling.steps());
  const uint64_t drawn = trajectory.behaviour_version.back();
  PlannedTrajectory planned{.drawn = static_cast<double>(drawn),
                            .oldest = static_cast<double>(drawn)};
  if (drawn != version.value) planned.origin = Origin::kStale;
  if (trajectory.replayed) planned.origin = Origin::kReplay;
  const std::vector<double> times =
      DrawTimes(options_.times, options_.sampling.sigmas,
                {options_.run_seed, step.value, group.id.value, trajectory.index});
  for (int k = 0; k < pairs_; ++k) {
    planned.rows.push_back({.step = k, .sigma = times[static_cast<size_t>(k)]});
  }
  return planned;
}

absl::StatusOr<Preparation> ForwardProcess::Prepare(LearnerStep step, TrainingPlan& plan,
                                                    const std::vector<Group>& groups,
                                                    const std::function<bool()>& interrupted) {
  Preparation prepared{.weights = {}, .used = ReplayedEntries(plan, groups), .evict = {}};
  const bool compares = has_ratio() && !SamplesWithOld();
  if (compares || options_.kl.pulls_to_precedent()) {
    KeepVelocities(step, plan, groups, interrupted);
  }
  return prepared;
}

RowBatch ForwardProcess::Gather(LearnerStep step, const std::vector<Group>& groups,
                                const std::vector<RowRef>& refs) const {
  OXBOW_CHECK(!refs.empty()) << "rows of a forward pass";
  std::vector<at::Tensor> clean;
  std::vector<at::Tensor> noise;
  RowBatch batch;
  for (const RowRef& ref : refs) {
    const Group& group = groups[ref.address.group];
    const Trajectory& trajectory = group.trajectories[ref.address.trajectory];
    clean.push_back(trajectory.latents[-1]);
    noise.push_back(DrawPairNoise(options_.times,
                                  {options_.run_seed, step.value, group.id.value, trajectory.index},
                                  ref.row->step, clean.back().sizes().vec()));
    batch.steps.push_back(ref.row->step);
  }
  batch.clean = at::stack(clean);
  batch.noise = at::stack(noise).to(batch.clean.device());
  batch.sigma = Column(refs, [](const RowRef& ref) { return ref.row->sigma; });
  const at::Tensor t = OverRows(batch.sigma, batch.clean).to(at::kFloat);
  batch.x = batch.clean * (1 - t) + batch.noise * t;
  batch.conditioning = GatherConditioning(groups, refs);
  return batch;
}

bool ForwardProcess::SamplesWithOld() const {
  return policy_.has_old() && &policy_.sampler() == &policy_.old();
}

at::Tensor ForwardProcess::OldCopyVelocity(const RowBatch& batch) const {
  const at::NoGradGuard no_grad;
  return policy_.old().Velocity(batch.x, batch.sigma, batch.conditioning);
}

RowTerms ForwardProcess::Clipped(const std::vector<RowRef>& refs, const at::Tensor& lp_new,
                                 const at::Tensor& lp_old, bool mean_first,
                                 double advantage_scale) const {
  const at::Tensor mine = mean_first ? SampleMeans(lp_new, pairs_) : lp_new;
  const at::Tensor old = (mean_first ? SampleMeans(lp_old, pairs_) : lp_old).detach();
  const at::Tensor advantage = AdvantageColumn(refs).to(at::kDouble) * advantage_scale;
  return {.loss = ClippedLoss(mine, old, advantage, at::ones_like(old), options_.clip()),
          .log_ratio = mine.detach() - old,
          .old_kl = {}};
}

double ForwardProcess::KlScaleOf(const PlannedRow& row) const {
  if (options_.kl.space == KlSpace::kVelocity) return 1;
  const double std = kElboEta * std::sqrt(row.sigma / (1 - std::min(row.sigma, kElboTimeMax)));
  return 1 / (2 * std * std);
}

}  // namespace oxbow::rl
