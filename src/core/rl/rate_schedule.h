// How the learning rate falls over a run: rate(s) = learning_rate * factor(s), s the learner step,
// counted from 0, n the steps of the fall:
//
//   constant   1
//   linear     1 - (1 - to) min(s / n, 1)
//   cosine     to + (1 - to) (1 + cos(pi min(s / n, 1))) / 2
//
// Warm-up is by optimiser update and multiplies this; see adamw.h.
#pragma once

#include <cstdint>

namespace oxbow::rl {

enum class RateShape { kConstant, kLinear, kCosine };

struct RateSchedule {
  RateShape shape = RateShape::kConstant;
  uint64_t steps = 0;  // n; 0: `to` at once.
  double to = 0.1;
};

// Pure.
double RateFactorAt(const RateSchedule& schedule, uint64_t step);

}  // namespace oxbow::rl
