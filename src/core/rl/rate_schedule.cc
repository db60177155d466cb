#include "core/rl/rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace oxbow::rl {

double RateFactorAt(const RateSchedule& schedule, uint64_t step) {
  if (schedule.shape == RateShape::kConstant) return 1;
  const double into =
      step >= schedule.steps
          ? 1
          : static_cast<double>(step) / static_cast<double>(std::max<uint64_t>(schedule.steps, 1));
  const double left =
      schedule.shape == RateShape::kLinear ? 1 - into : (1 + std::cos(std::numbers::pi * into)) / 2;
  return schedule.to + (1 - schedule.to) * left;
}

}  // namespace oxbow::rl
