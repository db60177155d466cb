// SPDX-License-Identifier: Apache-2.0
#include "core/rl/imitation.h"

#include <algorithm>
#include <cmath>

namespace oxbow::rl {
namespace {

constexpr double kEpsilon = 0.01;

}  // namespace

double ImitationAdvantage(double reward, double rate, double limit) {
  const double p = std::clamp(rate, 0.0, 1.0);
  return std::clamp((reward - p) / std::sqrt(p * (1 - p) + kEpsilon), 0.0, limit);
}

double ImitationScale(double weight_max, size_t fresh_with_signal, size_t added) {
  if (added == 0) return 0;
  return std::min(1.0,
                  weight_max * static_cast<double>(fresh_with_signal) / static_cast<double>(added));
}

}  // namespace oxbow::rl
