// SPDX-License-Identifier: Apache-2.0
// The noise levels a sampler visits: sigma_0 > sigma_1 > ... > sigma_T = 0, in the named grids of
// published pipelines. A schedule is stored with every trajectory and never recomputed.
//
// Symbols: sigma in [0, 1], 1 = pure noise; x_t = (1 - sigma) x0 + sigma eps; v = eps - x0.
#pragma once

#include <cstdint>
#include <vector>

namespace oxbow::flow {

enum class ScheduleKind {
  kDiffusersDefault,  // shift(linspace(1, shift(.001), T)): diffusers shifts sigma_min twice.
  kLinspace,          // shift(linspace(1, 1/T, T))
  kDance,             // shift(linspace(1, 0, T + 1))
  kUnipcFlow,         // Wan's UniPC up to diffusers 0.36; sigma_0 < 1.
  kUnipcFlowWhole,  // From 0.37: shift(linspace(1, .001, T + 1)) less its end; sigma_0 = 1 - 1e-6.
};

// Static time shift s t / (1 + (s - 1) t).
double Shift(double shift, double t);

// exp(mu) of the resolution-dependent shift; mu is linear in the number of image tokens.
double DynamicShift(int64_t tokens, double base_shift = 0.5, double max_shift = 1.15,
                    int64_t base_tokens = 256, int64_t max_tokens = 4096);

// T + 1 values, the last one 0. Requires steps >= 1, shift > 0 and 0 <= shift_terminal < 1. A
// shift_terminal above 0 stretches the levels above 0, so that the smallest of them is that number
// and the distances to 1 keep their ratios (diffusers' stretch_shift_to_terminal); a single level
// stays.
std::vector<double> SigmaGrid(ScheduleKind kind, int steps, double shift,
                              double shift_terminal = 0);

}  // namespace oxbow::flow
