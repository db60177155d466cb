// SPDX-License-Identifier: Apache-2.0
// Differences between methods: the rows a sample trains, what must be known of the policy before it
// moves, and a row's loss. Everything else (advantages, updates, ranks, optimiser, averages) is the
// same for all methods and belongs to the trainer.
//
// Two families. Policy gradients (policy_gradient.h) score sampled transitions; forward-process
// methods (forward_process.h) noise the final image again at times of their own. A method is a
// class of one family, a row of method_facts.h and a row of method_table.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/rl/loss_weight.h"
#include "core/rl/row_batch.h"
#include "core/rl/training_plan.h"

namespace oxbow::parallel {
class Ranks;
}
namespace oxbow::model {
class Policy;
}

namespace oxbow::rl {

// The terms of rows' losses under the current velocities. [R] each.
struct RowTerms {
  at::Tensor loss;         // To be minimised; with its gradient.
  at::Tensor log_ratio;    // The log of the ratio that is clipped; undefined where there is none.
  at::Tensor old_kl;       // The pull towards the old policy, with its gradient; undefined: none.
  at::Tensor centre{};     // lp_old, which later updates of these rows read; undefined: none.
  at::Tensor surrogate{};  // It stands for minus a log-prob; undefined: the method has none.
};

// Findings of a learner step before its first update.
struct Preparation {
  std::vector<SequenceWeight> weights;  // In plan order; the weights of all ranks.
  std::vector<EntryId> used;            // Replayed heads that will be trained on.
  std::vector<EntryId> evict;           // Weight non-finite or under the floor.
};

class Method {
 public:
  // All references outlive it.
  Method(const TrainerOptions& options, const model::Policy& policy, parallel::Ranks& ranks)
      : options_(options), policy_(policy), ranks_(ranks) {}
  virtual ~Method() = default;

  // Whether rows have a ratio to the policy before the step (RowTerms::log_ratio).
  virtual bool has_ratio() const = 0;

  // Rows of a fresh sample of learner step `step`: T_train of the loss's denominator.
  virtual int RowsPerSample(LearnerStep step) const = 0;

  // The rows of a sample, on every rank alike.
  virtual PlannedTrajectory Plan(LearnerStep step, PolicyVersion version, const Group& group,
                                 const Trajectory& trajectory) const = 0;

  // Before the first update: computes what the loss needs of the policy as it is. Called on every
  // rank, for the groups this rank holds; collective. Asks `interrupted` before each forward pass;
  // once it is true, no more are made, and what is returned is worth nothing. Errors as in
  // parallel/ranks.h.
  virtual absl::StatusOr<Preparation> Prepare(LearnerStep step, TrainingPlan& plan,
                                              const std::vector<Group>& groups,
                                              const std::function<bool()>& interrupted) = 0;

  // States, levels and conditioning of rows of learner step `step` whose latents are here. Requires
  // at least one.
  virtual RowBatch Gather(LearnerStep step, const std::vector<Group>& groups,
                          const std::vector<RowRef>& refs) const = 0;

  // `v` are the current velocities of `batch`, which is Gather of `refs`. For a method that needs
  // whole samples, all rows of a sample that an update trains are among them.
  virtual RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                         const at::Tensor& v) const = 0;

  // The factor of a row's squared velocity difference to the reference.
  virtual double KlScaleOf(const PlannedRow& row) const = 0;

  // Velocities of the policy before the step at `refs`, whose current velocity is `v`; no gradient.
  // Requires that Prepare kept them: a loss that compares with them, or kl.precedent above 0.
  at::Tensor VelocityBeforeStep(const std::vector<RowRef>& refs, const at::Tensor& v) const {
    return old_.Of(refs, v);
  }

 protected:
  // Whether this rank computes the samples of each group.
  std::vector<bool> OwnOf(const std::vector<Group>& groups) const;
  // For Prepare: keeps the velocities of rows that later updates train.
  void KeepVelocities(LearnerStep step, TrainingPlan& plan, const std::vector<Group>& groups,
                      const std::function<bool()>& interrupted);

  const TrainerOptions& options_;
  const model::Policy& policy_;
  parallel::Ranks& ranks_;

 private:
  OldVelocities old_;
};

// The method that the options name. All references outlive it.
std::unique_ptr<Method> MakeMethod(const TrainerOptions& options, const model::Policy& policy,
                                   parallel::Ranks& ranks);

// The clipped losses that methods share, one value per row (a row is one step of one trajectory),
// to be minimised. lp are log-probs averaged over latent elements, [R]. Gradients flow through
// `lp_new` alone; the other arguments are constants. `weight` is positive and stays outside the
// clip.

// weight max(-A r, -A clamp(r, 1 - low, 1 + high)), r = exp(lp_new - lp_old): PPO's clip as
// Flow-GRPO uses it (arXiv:2505.05470), where high is low; DAPO (arXiv:2503.14476) takes more. The
// naive off-policy baseline passes the behaviour's lp as `lp_old`.
at::Tensor ClippedLoss(const at::Tensor& lp_new, const at::Tensor& lp_old,
                       const at::Tensor& advantage, const at::Tensor& weight, ClipRange clip);

// -min(r A, clamp(r, max(r' - low, 0), r' + high) A), r = pi / behaviour, r' = pi_old / behaviour:
// the off-policy GRPO of arXiv:2505.22257, whose clip is centred on the old policy.
at::Tensor OffPolicyLoss(const at::Tensor& lp_new, const at::Tensor& lp_old,
                         const at::Tensor& lp_behaviour, const at::Tensor& advantage,
                         ClipRange clip);

}  // namespace oxbow::rl
