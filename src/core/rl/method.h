// What methods differ in: the rows a sample trains, what must be known of the policy before it
// moves, and a row's loss. Everything else (advantages, updates, ranks, optimiser, averages) is the
// same for all methods and belongs to the trainer.
//
// Two families. Policy gradients (policy_gradient.h) score sampled transitions; forward-process
// methods (forward_process.h) noise the final image again at times of their own. A method is a
// class of one family, a row of method_facts.h and a row of method_table.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/statusor.h"
#include "core/rl/correction.h"
#include "core/rl/row_batch.h"
#include "core/rl/training_plan.h"

namespace oxbow::rl {

// The terms of rows' losses under the current velocities. [R] each.
struct RowTerms {
  at::Tensor loss;       // To be minimised; with its gradient.
  at::Tensor log_ratio;  // The log of the ratio that is clipped; undefined where there is none.
  at::Tensor old_kl;     // The pull towards the old policy, with its gradient; undefined: none.
};

// What a learner step found out before its first update.
struct Preparation {
  std::vector<SequenceWeight> weights;  // In plan order; the weights of all ranks.
  std::vector<EntryId> used;            // Replayed heads that will be trained on.
  std::vector<EntryId> evict;           // Weight non-finite or under the floor.
};

class Method {
 public:
  virtual ~Method() = default;

  // Whether rows have a ratio to the policy before the step (RowTerms::log_ratio).
  virtual bool has_ratio() const = 0;

  // Rows of a fresh sample of learner step `step`: T_train of the loss's denominator.
  virtual int RowsPerSample(LearnerStep step) const = 0;

  // The rows of a sample, on every rank alike.
  virtual PlannedTrajectory Plan(LearnerStep step, PolicyVersion version, const Group& group,
                                 const Trajectory& trajectory) const = 0;

  // Before the first update: computes what the loss needs of the policy as it is. Called on every
  // rank, for the groups this rank holds; collective. Errors as in parallel/ranks.h.
  virtual absl::StatusOr<Preparation> Prepare(LearnerStep step, TrainingPlan& plan,
                                              const std::vector<Group>& groups) = 0;

  // States, levels and conditioning of rows of learner step `step` whose latents are here. Requires
  // at least one.
  virtual RowBatch Gather(LearnerStep step, const std::vector<Group>& groups,
                          const std::vector<RowRef>& refs) const = 0;

  // `v` are the current velocities of `batch`, which is Gather of `refs`. All rows of a sample that
  // an update trains are among them.
  virtual RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                         const at::Tensor& v) const = 0;

  // The factor of a row's squared velocity difference to the reference.
  virtual double KlScaleOf(const PlannedRow& row) const = 0;
};

}  // namespace oxbow::rl
