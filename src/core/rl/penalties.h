// SPDX-License-Identifier: Apache-2.0
// The two penalties for leaving the reference policy.
//
// The KL, a squared difference of velocities per row:
//
//   velocity  mean_D (v - v_ref)^2
//   mean      mean_D (mu - mu_ref)^2 / (2 std^2), std without sqrt(-dt): Flow-GRPO's KL, whose
//             published weights assume this scale. mu - mu_ref = cv (v - v_ref), so it is the first
//             times a number.
//   transition  mean_D (mu - mu_ref)^2 / (2 S^2), S = std sqrt(-dt): the KL of the two Gaussians,
//             Flow-GRPO's for Wan.
//
// The anchor, the same difference at noise levels that the method itself does not train:
//
//   weight * mean_elements |v_theta(x_t, t) - v_reference(x_t, t)|^2,   x_t = (1 - t) x_0 + t eps
//
// at one t uniform in [low, high] for each sample, with noise of its own. A method that trains high
// noise alone moves the field at low noise as well, because both share the weights: images get
// speckled. Held there, it keeps the details of the base while composition follows the reward.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rl/options.h"
#include "core/rl/row_batch.h"

namespace oxbow::model {
class Policy;
}

namespace oxbow::rl {

// The number by which a step's squared velocity difference is multiplied: 1, cv^2 / (2 std^2) as
// flow_grpo does for images, cv^2 / (2 S^2), the KL of the two Gaussians, as it does for Wan, or
// cv^2, the distance of the two means (Flow-Factory's kl_type x-based). The two that divide require
// a stochastic step.
double KlScale(KlSpace space, const flow::StepKernel& kernel);

// scale [R] times mean_D (v - v_ref)^2: [R]. No gradient through `v_reference`.
at::Tensor RowKl(const at::Tensor& v, const at::Tensor& v_reference, const at::Tensor& scale);

// The anchor's squared velocity differences [S] of the samples of `refs`, one ref for each; with
// gradient, not weighted. Requires that the samples' latents end at their final latent.
at::Tensor AnchorPull(const AnchorOptions& options, uint64_t run_seed, const model::Policy& policy,
                      const std::vector<Group>& groups, const std::vector<RowRef>& refs);

}  // namespace oxbow::rl
