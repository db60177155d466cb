// Policy gradients: the loss is a function of the log-probs of sampled transitions.
//
//   Flow-GRPO, DanceGRPO, MixGRPO, OP-GRPO   clip around pi_old           objective.h, correction.h
//   off-policy GRPO                          clip around pi_old / pi_off  objective.h
//   GRPO-Guard, Flow-DPPO                    guard.h
//   TempFlow-GRPO                            weights of steps             step_weight.h
//
// Dynamics and windows make the difference between the first three; they are the sampler's.
#pragma once

#include "core/rl/method.h"
#include "core/rl/old_velocity.h"

namespace oxbow::rl {

class PolicyGradient final : public Method {
 public:
  // All references outlive it. `options.method` is one of this family.
  PolicyGradient(const TrainerOptions& options, const model::Policy& policy,
                 parallel::Ranks& ranks);

  int RowsPerSample(LearnerStep step) const override;

  // Fresh samples train every stochastic step; stale ones (drawn by an older policy) only steps
  // before i_off; replayed ones their stored head and, where it was regenerated stochastically,
  // their tail. With step_fraction, a random subset of those.
  PlannedSample Plan(LearnerStep step, PolicyVersion version, const Group& group,
                     const Sample& sample) const override;

  // lp_old of transitions other policies drew, and W.
  absl::StatusOr<Preparation> Prepare(LearnerStep step, StepPlan& plan,
                                      const std::vector<Group>& groups) override;

  RowBatch Gather(const std::vector<Group>& groups, const std::vector<RowRef>& refs) const override;
  RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                 const at::Tensor& v) const override;
  double KlScaleOf(const PlannedRow& row) const override;

 private:
  void ThinOut(LearnerStep step, const Group& group, const Sample& sample,
               PlannedSample& planned) const;
  void ScoreUnderOldPolicy(StepPlan& plan, const std::vector<Group>& groups) const;
  SequenceWeight WeightOf(const PlannedSample& planned, const Sample& sample) const;
  RowTerms GuardTerms(const RowBatch& batch, const std::vector<RowRef>& refs,
                      const at::Tensor& v) const;

  const TrainerOptions& options_;
  const model::Policy& policy_;
  parallel::Ranks& ranks_;
  const std::vector<int> steps_;       // The stochastic ones.
  const std::vector<double> weights_;  // Of every step in the loss.
  OldVelocities old_;
};

}  // namespace oxbow::rl
