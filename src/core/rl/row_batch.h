// SPDX-License-Identifier: Apache-2.0
// The tensors of many rows of a plan: gathered for one forward pass, summed over their elements,
// kept from before the first update.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "core/flow/dynamics.h"
#include "core/model/velocity_model.h"
#include "core/rl/experience.h"
#include "core/rl/training_plan.h"

namespace oxbow::rl {

struct RowAddress {
  size_t group = 0;
  size_t trajectory = 0;
  int step = 0;
};

// A row of the plan together with its address.
struct RowRef {
  RowAddress address;
  PlannedTrajectory* trajectory = nullptr;
  PlannedRow* row = nullptr;
  bool in_kl = false;
};

void AppendRows(PlannedTrajectory& trajectory, std::vector<RowRef>& refs);

struct RowBatch {
  at::Tensor x;                      // [R, C, H, W]
  at::Tensor sigma;                  // [R]
  model::Conditioning conditioning;  // One row each; rows of one group repeat it.
  std::vector<int> steps;

  at::Tensor x_next;  // [R, C, H, W]; of transitions.
  at::Tensor clean;   // [R, C, H, W]; of noised images: x_0 and the noise.
  at::Tensor noise;
};

// Transitions. Requires at least one row, and that every row has its transition.
RowBatch GatherTransitions(const std::vector<Group>& groups, const std::vector<RowRef>& refs);

// The rows at `index` (int64 [K]) of a batch: state, level and conditioning.
RowBatch SelectRows(const RowBatch& batch, const std::vector<int64_t>& index);

// Log-probs [R] of the batch's transitions under velocities `v`: the operations of the sampler.
at::Tensor ScoreRows(const flow::SamplingSpec& spec, const RowBatch& batch, const at::Tensor& v);

// Conditioning of the rows, one row each.
model::Conditioning GatherConditioning(const std::vector<Group>& groups,
                                       const std::vector<RowRef>& refs);

// One number of every row, float32 [R].
at::Tensor Column(const std::vector<RowRef>& refs, double (*value)(const RowRef&));
at::Tensor AdvantageColumn(const std::vector<RowRef>& refs);

// The following compute in float64 over contiguous rows of one shape: a row's bits do not depend on
// the rows beside it.

// The mean over the elements of each row: [R, ...] -> [R].
at::Tensor ElementMean(const at::Tensor& rows);

// `column` [R] shaped to multiply rows of `like` [R, ...], as float64.
at::Tensor OverRows(const at::Tensor& column, const at::Tensor& like);

// The clean image that a velocity predicts: x_t - t v, [R, ...] float64; `t` is [R].
at::Tensor CleanPrediction(const at::Tensor& x_t, const at::Tensor& t, const at::Tensor& v);

// The velocities that the policy predicted at the start of a learner step, for the rows that later
// updates compare with.
//
// Rows of the first update need no entry: the policy they are compared with is the one that is
// trained, and its velocity is at hand.
class OldVelocities {
 public:
  using Gather = std::function<RowBatch(const std::vector<RowRef>&)>;

  // Computes the velocities of the trained rows of samples that an update after the first has and
  // whose latents are here (`own`), and gives those rows their places. Without gradients, at most
  // `rows_max` rows at once. Once `interrupted`, it leaves the rest.
  void Compute(const model::VelocityModel& policy, TrainingPlan& plan, const Gather& gather,
               const std::function<bool(size_t group)>& own, size_t rows_max,
               const std::function<bool()>& interrupted);

  // [R, C, H, W] of rows whose current velocity is `v`; no gradient.
  at::Tensor Of(const std::vector<RowRef>& refs, const at::Tensor& v) const;

 private:
  std::vector<at::Tensor> velocities_;  // [C, H, W] each.
};

}  // namespace oxbow::rl
