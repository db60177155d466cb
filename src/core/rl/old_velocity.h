// The velocities that the policy predicted at the start of a learner step, for the rows that later
// updates compare with.
//
// Rows of the first update need no entry: the policy they are compared with is the one that is
// trained, and its velocity is at hand.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "core/model/velocity_model.h"
#include "core/rl/row_batch.h"

namespace oxbow::rl {

class OldVelocities {
 public:
  using Gather = std::function<RowBatch(const std::vector<RowRef>&)>;

  // Computes the velocities of the trained rows of samples that an update after the first has and
  // whose latents are here (`own`), and gives those rows their places. Without gradients, at most
  // `rows_max` rows at once.
  void Compute(const model::VelocityModel& policy, TrainingPlan& plan, const Gather& gather,
               const std::function<bool(size_t group)>& own, size_t rows_max);

  // [R, C, H, W] of rows whose current velocity is `v`; no gradient.
  at::Tensor Of(const std::vector<RowRef>& refs, const at::Tensor& v) const;

 private:
  std::vector<at::Tensor> velocities_;  // [C, H, W] each.
};

}  // namespace oxbow::rl
