// SPDX-License-Identifier: Apache-2.0
#include "core/flow/schedule.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace oxbow::flow {
namespace {

// The training grid has 1000 levels; its smallest is one thousandth.
constexpr double kSmallestLevel = 1.0 / 1000.0;

// `count` evenly spaced values, both ends exact.
std::vector<double> Linspace(double first, double last, int count) {
  std::vector<double> values(static_cast<size_t>(count), first);
  for (int i = 1; i < count; ++i) {
    values[static_cast<size_t>(i)] = first + i * ((last - first) / (count - 1));
  }
  if (count > 1) values.back() = last;
  return values;
}

std::vector<double> Shifted(double shift, std::vector<double> levels) {
  for (double& level : levels) level = Shift(shift, level);
  return levels;
}

std::vector<double> EndingAtZero(std::vector<double> levels) {
  levels.push_back(0);
  return levels;
}

// Alphas run over [1, .001] in T + 1 points. Noise levels are 1 - alpha, noisiest first; the last
// level is replaced by an exact zero.
std::vector<double> UnipcFlow(int steps, double shift) {
  std::vector<double> levels = Linspace(1, kSmallestLevel, steps + 1);
  for (double& level : levels) level = Shift(shift, 1 - level);
  std::reverse(levels.begin(), levels.end());
  levels.back() = 0;
  return levels;
}

// UniPC's corrector takes the logarithm of 1 - sigma_0, so that the first level is just below one.
std::vector<double> UnipcFlowWhole(int steps, double shift) {
  constexpr double kBelowOne = 1e-6;
  std::vector<double> levels = Shifted(shift, Linspace(1, kSmallestLevel, steps + 1));
  levels.front() -= kBelowOne;
  levels.back() = 0;
  return levels;
}

std::vector<double> Grid(ScheduleKind kind, int steps, double shift) {
  switch (kind) {
    case ScheduleKind::kDiffusersDefault:
      return EndingAtZero(Shifted(shift, Linspace(1, Shift(shift, kSmallestLevel), steps)));
    case ScheduleKind::kLinspace:
      return EndingAtZero(Shifted(shift, Linspace(1, 1.0 / steps, steps)));
    case ScheduleKind::kDance:
      return Shifted(shift, Linspace(1, 0, steps + 1));
    case ScheduleKind::kUnipcFlow:
      return UnipcFlow(steps, shift);
    case ScheduleKind::kUnipcFlowWhole:
      return UnipcFlowWhole(steps, shift);
  }
  OXBOW_CHECK(false) << "schedule kind " << static_cast<int>(kind);
}

}  // namespace

double Shift(double shift, double t) { return shift * t / (1 + (shift - 1) * t); }

double DynamicShift(int64_t tokens, double base_shift, double max_shift, int64_t base_tokens,
                    int64_t max_tokens) {
  const double slope = (max_shift - base_shift) / static_cast<double>(max_tokens - base_tokens);
  return std::exp(base_shift + slope * static_cast<double>(tokens - base_tokens));
}

std::vector<double> SigmaGrid(ScheduleKind kind, int steps, double shift, double shift_terminal) {
  OXBOW_CHECK(steps >= 1 && shift > 0) << "sigma grid: steps " << steps << ", shift " << shift;
  OXBOW_CHECK(shift_terminal >= 0 && shift_terminal < 1) << shift_terminal;
  std::vector<double> levels = Grid(kind, steps, shift);
  const double lowest = levels[levels.size() - 2];
  if (shift_terminal == 0 || steps == 1 || lowest == 1) return levels;
  const double scale = (1 - lowest) / (1 - shift_terminal);
  for (size_t i = 0; i + 1 < levels.size(); ++i) levels[i] = 1 - (1 - levels[i]) / scale;
  return levels;
}

}  // namespace oxbow::flow
