// SPDX-License-Identifier: Apache-2.0
#include "core/rl/method.h"

#include <ATen/ATen.h>

#include "core/model/policy.h"
#include "core/parallel/ranks.h"

namespace oxbow::rl {

std::vector<bool> Method::OwnOf(const std::vector<Group>& groups) const {
  std::vector<bool> own;
  for (const int holder : HoldersOf(groups, ranks_.size())) own.push_back(holder == ranks_.rank());
  return own;
}

void Method::KeepVelocities(LearnerStep step, TrainingPlan& plan, const std::vector<Group>& groups,
                            const std::function<bool()>& interrupted) {
  const std::vector<bool> own = OwnOf(groups);
  old_.Compute(
      policy_.current(), plan,
      [&](const std::vector<RowRef>& refs) { return Gather(step, groups, refs); },
      [&](size_t group) { return own[group]; }, options_.RowsPerForward(), interrupted);
}

at::Tensor ClippedLoss(const at::Tensor& lp_new, const at::Tensor& lp_old,
                       const at::Tensor& advantage, const at::Tensor& weight, ClipRange clip) {
  const at::Tensor ratio = (lp_new - lp_old.detach()).exp();
  const at::Tensor gain = -advantage.detach();
  const at::Tensor clipped = ratio.clamp(1 - clip.low, 1 + clip.high);
  return weight.detach() * at::maximum(gain * ratio, gain * clipped);
}

at::Tensor OffPolicyLoss(const at::Tensor& lp_new, const at::Tensor& lp_old,
                         const at::Tensor& lp_behaviour, const at::Tensor& advantage,
                         ClipRange clip) {
  const at::Tensor ratio = (lp_new - lp_behaviour.detach()).exp();
  const at::Tensor centre = (lp_old - lp_behaviour).detach().exp();
  const at::Tensor constant = advantage.detach();
  // Limits in float64: where the centre is 1 they round to the very bits of ClippedLoss.
  const at::Tensor wide = centre.to(at::kDouble);
  const at::Tensor clipped = ratio.clamp((wide - clip.low).clamp_min(0).to(centre.scalar_type()),
                                         (wide + clip.high).to(centre.scalar_type()));
  return -at::minimum(ratio * constant, clipped * constant);
}

}  // namespace oxbow::rl
