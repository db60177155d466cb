// How many steps of a stored trajectory to keep: the ill-conditioned late steps are generated
// again.
//
// A change of velocity dv makes step i off-policy by kappa_i = kc_i mean(dv^2), and kc_i grows by
// three orders of magnitude along a trajectory. Steps past the first kc_i >= the limit are dropped
// from the importance weight and from the loss (OP-GRPO's t_off, counted from the noisy end).
#pragma once

#include <vector>

#include "core/flow/dynamics.h"

namespace oxbow::flow {

// kc of every step; 0 for deterministic ones.
std::vector<double> SensitivityTable(const SamplingSpec& spec);

// i_off: one past the last stochastic step before any with kc >= `kc_max`; 0 if there is none.
// Latents x_0 .. x_{i_off} are worth storing, and the tail is sampled again from x_{i_off}.
int KeptSteps(const SamplingSpec& spec, double kc_max);

}  // namespace oxbow::flow
