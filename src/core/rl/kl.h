// The pull towards the reference policy: a squared difference of velocities per row.
//
//   velocity  mean_D (v - v_ref)^2
//   mean      mean_D (mu - mu_ref)^2 / (2 std^2), std without sqrt(-dt): Flow-GRPO's KL, whose
//   published
//             weights assume this scale. mu - mu_ref = cv (v - v_ref), so it is the first times a
//             number.
#pragma once

#include "core/flow/dynamics.h"

namespace oxbow::rl {

enum class KlSpace { kVelocity, kMean };

// The number by which a step's squared velocity difference is multiplied. kMean requires a
// stochastic step.
double KlScale(KlSpace space, const flow::StepKernel& kernel);

// scale [R] times mean_D (v - v_ref)^2: [R]. No gradient through `v_reference`.
at::Tensor RowKl(const at::Tensor& v, const at::Tensor& v_reference, const at::Tensor& scale);

}  // namespace oxbow::rl
