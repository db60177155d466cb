// SPDX-License-Identifier: Apache-2.0
#include "core/flow/compression.h"

#include <algorithm>

#include "base/check.h"
#include "core/flow/schedule.h"

namespace oxbow::flow {
namespace {

// The time whose shift is `sigma`.
double Unshift(double shift, double sigma) { return sigma / (shift - (shift - 1) * sigma); }

}  // namespace

int CompressedSteps(double share, int steps) {
  OXBOW_CHECK(share > 0 && share <= 1 && steps >= 0) << share << " of " << steps << " steps";
  if (share == 1 || steps <= 1) return steps;
  // Rounded as the published code does it, where share (R + 1) is a hair above or below an integer.
  return std::max(1, static_cast<int>((steps + 1) * share) - 1);
}

std::vector<double> CompressedLevels(const Compression& compression,
                                     const std::vector<double>& sigmas, int first) {
  OXBOW_CHECK(first >= 0 && first < static_cast<int>(sigmas.size())) << "level " << first;
  const int left = static_cast<int>(sigmas.size()) - 1 - first;
  const int steps = CompressedSteps(compression.share, left);
  if (steps == left) return {sigmas.begin() + first + 1, sigmas.end()};
  const double start = Unshift(compression.shift, sigmas[static_cast<size_t>(first)]);
  std::vector<double> levels;
  for (int j = 1; j < steps; ++j) {
    levels.push_back(Shift(compression.shift, start * (1 - j / static_cast<double>(steps))));
  }
  levels.push_back(0);
  return levels;
}

int FirstFreeLatent(const std::vector<bool>& sde, int first_step) {
  int first = first_step;
  for (int i = first_step; i < static_cast<int>(sde.size()); ++i) {
    if (sde[static_cast<size_t>(i)]) first = i + 1;
  }
  return first;
}

int StepsTaken(double share, const std::vector<bool>& sde, int first_step) {
  const int first = FirstFreeLatent(sde, first_step);
  return first - first_step + CompressedSteps(share, static_cast<int>(sde.size()) - first);
}

}  // namespace oxbow::flow
