// SPDX-License-Identifier: Apache-2.0
#include "core/rl/row_batch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "base/check.h"

namespace oxbow::rl {

void AppendRows(PlannedTrajectory& trajectory, std::vector<RowRef>& refs) {
  for (PlannedRow& row : trajectory.rows) {
    refs.push_back({.address = {trajectory.group, trajectory.trajectory, row.step},
                    .trajectory = &trajectory,
                    .row = &row});
  }
}

// Stacks the conditioning of the groups that occur and repeats it by row.
model::Conditioning GatherConditioning(const std::vector<Group>& groups,
                                       const std::vector<RowRef>& refs) {
  std::vector<model::Conditioning> conditionings;
  std::vector<int64_t> place(groups.size(), -1);
  std::vector<int64_t> index;
  for (const RowRef& ref : refs) {
    const size_t group = ref.address.group;
    if (place[group] < 0) {
      place[group] = static_cast<int64_t>(conditionings.size());
      conditionings.push_back(groups[group].conditioning);
    }
    index.push_back(place[group]);
  }
  return model::SelectRows(model::ConcatRows(conditionings), at::tensor(index, at::kLong));
}

at::Tensor Column(const std::vector<RowRef>& refs, double (*value)(const RowRef&)) {
  std::vector<float> values;
  values.reserve(refs.size());
  for (const RowRef& ref : refs) values.push_back(static_cast<float>(value(ref)));
  return at::tensor(values, at::kFloat);
}

at::Tensor AdvantageColumn(const std::vector<RowRef>& refs) {
  return Column(refs,
                [](const RowRef& ref) { return ref.trajectory->advantage - ref.row->baseline; });
}

RowBatch GatherTransitions(const std::vector<Group>& groups, const std::vector<RowRef>& refs) {
  OXBOW_CHECK(!refs.empty()) << "rows of a forward pass";
  std::vector<at::Tensor> x;
  std::vector<at::Tensor> x_next;
  RowBatch batch;
  for (const RowRef& ref : refs) {
    const Trajectory& trajectory = groups[ref.address.group].trajectories[ref.address.trajectory];
    const int64_t at_latent = ref.address.step - trajectory.first_latent;
    x.push_back(trajectory.latents[at_latent]);
    x_next.push_back(trajectory.latents[at_latent + 1]);
    batch.steps.push_back(ref.address.step);
  }
  batch.x = at::stack(x);
  batch.x_next = at::stack(x_next);
  batch.sigma = Column(refs, [](const RowRef& ref) { return ref.row->sigma; });
  batch.conditioning = GatherConditioning(groups, refs);
  return batch;
}

RowBatch SelectRows(const RowBatch& batch, const std::vector<int64_t>& index) {
  const at::Tensor selection = at::tensor(index, at::kLong);
  RowBatch out{.x = batch.x.index_select(0, selection),
               .sigma = batch.sigma.index_select(0, selection),
               .conditioning = model::SelectRows(batch.conditioning, selection)};
  for (const int64_t i : index) out.steps.push_back(batch.steps[static_cast<size_t>(i)]);
  return out;
}

at::Tensor ScoreRows(const flow::SamplingSpec& spec, const RowBatch& batch, const at::Tensor& v) {
  const auto kernels = flow::GatherKernels(spec, batch.steps);
  return flow::RowLogProb(*kernels, flow::RowMean(*kernels, batch.x, v), batch.x_next);
}

at::Tensor ElementMean(const at::Tensor& rows) { return rows.to(at::kDouble).flatten(1).mean(1); }

at::Tensor OverRows(const at::Tensor& column, const at::Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[0] = -1;
  return column.to(like.device(), at::kDouble).view(shape);
}

at::Tensor CleanPrediction(const at::Tensor& x_t, const at::Tensor& t, const at::Tensor& v) {
  return x_t.to(at::kDouble) - OverRows(t, x_t) * v.to(at::kDouble);
}

void OldVelocities::Compute(const model::VelocityModel& policy, TrainingPlan& plan,
                            const Gather& gather, const std::function<bool(size_t group)>& own,
                            size_t rows_max, const std::function<bool()>& interrupted) {
  const at::NoGradGuard no_grad;
  velocities_.clear();
  std::set<size_t> later;
  for (size_t u = 1; u < plan.updates.size(); ++u) {
    later.insert(plan.updates[u].begin(), plan.updates[u].end());
  }
  std::vector<RowRef> wanted;
  for (const size_t s : later) AppendRows(plan.trajectories[s], wanted);
  std::erase_if(wanted, [&](const RowRef& ref) {
    return !ref.row->trained || ref.trajectory->weight <= 0 || !own(ref.address.group);
  });
  for (size_t begin = 0; begin < wanted.size() && !interrupted(); begin += rows_max) {
    const size_t end = std::min(begin + rows_max, wanted.size());
    const std::vector<RowRef> part(wanted.begin() + static_cast<std::ptrdiff_t>(begin),
                                   wanted.begin() + static_cast<std::ptrdiff_t>(end));
    const RowBatch batch = gather(part);
    const at::Tensor v = policy.Velocity(batch.x, batch.sigma, batch.conditioning);
    for (size_t r = 0; r < part.size(); ++r) {
      part[r].row->old_velocity = static_cast<int64_t>(velocities_.size());
      velocities_.push_back(v[static_cast<int64_t>(r)]);
    }
  }
}

at::Tensor OldVelocities::Of(const std::vector<RowRef>& refs, const at::Tensor& v) const {
  const at::Tensor now = v.detach();
  std::vector<at::Tensor> rows;
  rows.reserve(refs.size());
  for (size_t r = 0; r < refs.size(); ++r) {
    const int64_t place = refs[r].row->old_velocity;
    rows.push_back(place < 0 ? now[static_cast<int64_t>(r)]
                             : velocities_[static_cast<size_t>(place)]);
  }
  return at::stack(rows);
}

}  // namespace oxbow::rl
