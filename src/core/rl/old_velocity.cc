#include "core/rl/old_velocity.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

namespace oxbow::rl {

void OldVelocities::Compute(const model::VelocityModel& policy, TrainingPlan& plan,
                            const Gather& gather, const std::function<bool(size_t group)>& own,
                            size_t rows_max) {
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
  for (size_t begin = 0; begin < wanted.size(); begin += rows_max) {
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
