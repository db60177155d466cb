// SPDX-License-Identifier: Apache-2.0
// Policy gradients: the loss is a function of the log-probs of sampled transitions.
//
// Their common parts: the trained transitions of a sample, their log-probs under the policy
// before the step, and the weights W of off-policy trajectories (loss_weight.h). A method of the
// family adds the loss of a row.
//
//   Flow-GRPO, DanceGRPO, MixGRPO, OP-GRPO, off-policy GRPO, TempFlow-GRPO   grpo.h
//   GRPO-Guard, Flow-DPPO                                                    guard.h
#pragma once

#include "core/rl/method.h"

namespace oxbow::rl {

class PolicyGradient : public Method {
 public:
  PolicyGradient(const TrainerOptions& options, const model::Policy& policy,
                 parallel::Ranks& ranks);

  bool has_ratio() const override { return true; }
  int RowsPerSample(LearnerStep step) const override;

  // Fresh samples train every stochastic step; stale ones (a step of which an older policy took)
  // only steps before i_off, which then count for those that are left out, or all where this policy
  // took those from i_off on; replayed ones their stored head and, where it was regenerated
  // stochastically, their tail. With step_fraction, a random subset of those.
  PlannedTrajectory Plan(LearnerStep step, PolicyVersion version, const Group& group,
                         const Trajectory& trajectory) const override;

  // lp_old of transitions other policies drew (with recompute_on_policy: of all), and W; where
  // NeedsOldVelocities, the velocities of rows that later updates train. What W does not read is
  // left to the training pass: the policy has not moved in the first update, and velocities say it
  // in the others.
  absl::StatusOr<Preparation> Prepare(LearnerStep step, TrainingPlan& plan,
                                      const std::vector<Group>& groups,
                                      const std::function<bool()>& interrupted) override;

  RowBatch Gather(LearnerStep step, const std::vector<Group>& groups,
                  const std::vector<RowRef>& refs) const override;
  double KlScaleOf(const PlannedRow& row) const override;

 protected:
  // Whether a loss compares with the policy before the step in more than log-probs.
  virtual bool NeedsOldVelocities() const { return options_.kl.pulls_to_precedent(); }

  // One number of every row, float32 [R]: of the kernel of its step, the log-prob at the clip's
  // centre, and what the row counts (W times the weight of its step).
  at::Tensor KernelColumn(const RowBatch& batch, double (*value)(const flow::StepKernel&)) const;
  // `v` are the current velocities.
  at::Tensor OldLogProbs(const RowBatch& batch, const std::vector<RowRef>& refs,
                         const at::Tensor& v) const;
  static at::Tensor Weights(const std::vector<RowRef>& refs);

 private:
  std::vector<double> WeightsFor(LearnerStep step, const Trajectory& trajectory) const;
  void FillUp(LearnerStep step, PlannedTrajectory& planned) const;
  void ThinOut(LearnerStep step, const Group& group, const Trajectory& trajectory,
               PlannedTrajectory& planned) const;
  void ScoreUnderOldPolicy(TrainingPlan& plan, const std::vector<Group>& groups,
                           const std::function<bool()>& interrupted) const;
  SequenceWeight WeightOf(const PlannedTrajectory& planned) const;

  const std::vector<int> steps_;       // The stochastic ones.
  const std::vector<double> weights_;  // Every step's weight in the loss, without a window.
};

}  // namespace oxbow::rl
