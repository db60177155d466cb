#include "core/rl/decay_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace oxbow::rl {
namespace {

// 0 .. 1 over `length` steps.
double Progress(double step, uint64_t length) {
  return length == 0 ? 1 : std::clamp(step / static_cast<double>(length), 0., 1.);
}

double CosineRamp(double from, double to, double progress) {
  return from + (to - from) * (1 - std::cos(std::numbers::pi * progress)) / 2;
}

}  // namespace

double DecayAt(const DecayOptions& o, uint64_t step) {
  const auto s = static_cast<double>(step);
  const auto warmup = static_cast<double>(o.warmup);
  switch (o.shape) {
    case DecayShape::kConstant:
      return o.decay;
    case DecayShape::kPower:
      return std::min(o.decay, (1 + s) / (warmup + s));
    case DecayShape::kLinear:
      return o.start + (o.decay - o.start) * Progress(s, o.warmup);
    case DecayShape::kPiecewiseLinear:
      if (step < o.flat) return 0;
      return std::min((s - static_cast<double>(o.flat)) * o.rate, o.decay);
    case DecayShape::kCosine:
      return CosineRamp(o.start, o.decay, Progress(s, o.length));
    case DecayShape::kWarmupCosine:
      if (step < o.warmup) return o.start * s / warmup;
      return CosineRamp(o.start, o.decay,
                        Progress(s - warmup, o.length - std::min(o.length, o.warmup)));
  }
  OXBOW_CHECK(false) << "decay shape " << static_cast<int>(o.shape);
}

}  // namespace oxbow::rl
