// How much each denoising step of a policy gradient counts, 1 on average over the trained steps.
//
//   noise        w_i ~ S_i: noisy steps explore more. TempFlow-GRPO (arXiv:2508.04324), whose
//                factor 2.25 is 1 / mean S on Flow-GRPO's grid of ten at eta .7
//   sensitivity  w_i ~ 1 / sqrt(kc_i): every step moves the velocity alike (kc in dynamics.h)
#pragma once

#include <vector>

#include "core/flow/dynamics.h"

namespace oxbow::rl {

enum class StepWeight { kNone, kNoise, kSensitivity };

// w of every step of the spec; 0 for deterministic ones. kNone: 1.
std::vector<double> StepWeights(StepWeight kind, const flow::SamplingSpec& spec);

}  // namespace oxbow::rl
