// SPDX-License-Identifier: Apache-2.0
#include "core/rl/penalties.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/check.h"
#include "base/philox.h"
#include "core/flow/sampler.h"
#include "core/model/policy.h"

namespace oxbow::rl {

double KlScale(KlSpace space, const flow::StepKernel& kernel) {
  if (space == KlSpace::kVelocity) return 1;
  if (space == KlSpace::kLatent) return kernel.cv * kernel.cv;
  const double spread = space == KlSpace::kMean ? kernel.std : kernel.scale;
  OXBOW_CHECK(spread > 0) << "KL of the means of a deterministic step; sigma " << kernel.sigma;
  return kernel.cv * kernel.cv / (2 * spread * spread);
}

at::Tensor RowKl(const at::Tensor& v, const at::Tensor& v_reference, const at::Tensor& scale) {
  return (v - v_reference.detach()).square().flatten(1).mean(1) * scale;
}

at::Tensor AnchorPull(const AnchorOptions& options, uint64_t run_seed, const model::Policy& policy,
                      const std::vector<Group>& groups, const std::vector<RowRef>& refs) {
  std::vector<float> times;
  std::vector<at::Tensor> clean;
  std::vector<at::Tensor> noise;
  for (const RowRef& ref : refs) {
    const Group& group = groups[ref.address.group];
    const Trajectory& trajectory = group.trajectories[ref.address.trajectory];
    RandomStream stream({.seed = run_seed,
                         .group = group.id.value,
                         .sample = trajectory.index,
                         .step = kAnchorTime});
    times.push_back(
        static_cast<float>(kAnchorLow + (options.high - kAnchorLow) * stream.NextUniform()));
    clean.push_back(trajectory.latents[-1]);
    noise.push_back(flow::DrawNoise({run_seed, group.id.value, trajectory.index}, kAnchorNoise,
                                    clean.back().sizes().vec()));
  }
  const at::Tensor x0 = at::stack(clean);
  const at::Tensor eps = at::stack(noise).to(x0.device());
  const at::Tensor sigma = at::tensor(times, at::kFloat);
  const at::Tensor t = OverRows(sigma, x0).to(at::kFloat);
  const at::Tensor x = x0 * (1 - t) + eps * t;
  const model::Conditioning conditioning = GatherConditioning(groups, refs);
  const at::Tensor v = policy.current().Velocity(x, sigma, conditioning);
  at::Tensor reference;
  {
    const at::NoGradGuard no_grad;
    reference = policy.reference().Velocity(x, sigma, conditioning);
  }
  return ElementMean((v - reference).square());
}

}  // namespace oxbow::rl
