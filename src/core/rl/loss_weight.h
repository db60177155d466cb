// SPDX-License-Identifier: Apache-2.0
// The weights of a policy gradient's rows in its loss: W of the trajectory, w of the denoising
// step.
//
// W of an off-policy trajectory says how likely the policy at the start of the step was to draw it,
// relative to the policy that did (OP-GRPO's sequence-level correction).
//
//   log W = sum_i (lp_i(old) - lp_i(behaviour)),   lp averaged over the latent's elements
//
// So W is the product of per-step ratios as Flow-GRPO defines them. With sums over elements it
// would be the importance weight of the densities, which is zero for latents as large as an
// image's.
//
// w says how much each step counts, 1 on average over the trained steps.
//
//   noise        w_i ~ S_i: noisy steps explore more. TempFlow-GRPO (arXiv:2508.04324), whose
//                factor 2.25 is 1 / mean S on Flow-GRPO's grid of ten at eta .7
//   sensitivity  w_i ~ 1 / sqrt(kc_i): every step moves the velocity alike (kc in dynamics.h)
#pragma once

#include <vector>

#include "core/flow/dynamics.h"

namespace oxbow::rl {

enum class Correction {
  kSequence,  // Loss on rho = pi / pi_old, weighted with W.
  kNaive,     // Loss on pi / pi_behaviour per step; no weight.
  kNone,      // Loss on pi / pi_old; no weight.
  kBypass,    // As kSequence for replayed heads; stale fresh samples are taken as drawn by pi_old.
  kBehaviourClip,  // Loss on pi / pi_behaviour, clipped around pi_old / pi_behaviour; no weight.
};

struct SequenceWeight {
  double log_weight = 0;  // Before the cap.
  double weight = 0;
  bool truncated = false;  // The cap applied.
  bool evict = false;      // Not finite; the weight is then 0.
};

// Weight over the steps given (the kept ones), at most `cap`. Requires as many old as behaviour
// values.
SequenceWeight ComputeSequenceWeight(const std::vector<double>& log_prob_old,
                                     const std::vector<double>& log_prob_behaviour, double cap);

// (sum W)^2 / sum W^2: how many equally weighted samples the weights are worth. 0 for none.
double EffectiveSampleSize(const std::vector<double>& weights);

enum class StepWeight { kNone, kNoise, kSensitivity };

// w of every step of the spec; 0 for deterministic ones. kNone: 1.
std::vector<double> StepWeights(StepWeight kind, const flow::SamplingSpec& spec);

}  // namespace oxbow::rl
