// AdamW (arXiv:1711.05101) over one flat tensor, numerically as torch.optim.AdamW; the schedule of
// its learning rate; and the two other things done to flat tensors once per update: limiting the
// gradient's norm, and the running average (EMA).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace oxbow::rl {

struct AdamWOptions {
  double learning_rate = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-4;  // Decoupled: weights shrink by learning_rate * weight_decay.
  int warmup_updates = 0;      // The rate rises linearly and is whole at this update.
};

enum class RateShape { kConstant, kLinear, kCosine };

// How the learning rate falls over a run: rate(s) = learning_rate * factor(s), where s is the
// learner step, counted from 0, and n the number of steps over which it falls:
//
//   constant   1
//   linear     1 - (1 - to) min(s / n, 1)
//   cosine     to + (1 - to) (1 + cos(pi min(s / n, 1))) / 2
//
// Warm-up counts optimiser updates and multiplies this factor.
struct RateSchedule {
  RateShape shape = RateShape::kConstant;
  uint64_t steps = 0;  // n; 0: `to` at once.
  double to = 0.1;
};

// factor(step). Pure.
double RateFactorAt(const RateSchedule& schedule, uint64_t step);

class AdamW {
 public:
  // Moments start at zero, with the shape and device of `flat`.
  AdamW(AdamWOptions options, const at::Tensor& flat);

  // One update of `flat` in place. `rate_factor` is the caller's schedule at this update.
  void Step(at::Tensor& flat, const at::Tensor& grad, double rate_factor = 1);

  double learning_rate() const;  // At the next update, without the caller's schedule.
  int64_t updates() const { return updates_; }
  const at::Tensor& first_moment() const { return first_; }
  const at::Tensor& second_moment() const { return second_; }

  // Puts back a saved state. Shapes must fit.
  void Restore(const at::Tensor& first, const at::Tensor& second, int64_t updates);

 private:
  const AdamWOptions options_;
  at::Tensor first_;
  at::Tensor second_;
  int64_t updates_ = 0;
};

// Scales `grad` in place so that its norm is at most `norm_max` (0: never) and returns the norm
// before.
double ClipGradNorm(at::Tensor& grad, double norm_max);

// min((1 + k) / (10 + k), decay_max) after k updates: short memory at first.
double EmaDecay(int64_t updates, double decay_max);

// average <- decay average + (1 - decay) current, in place.
void UpdateEma(at::Tensor& average, const at::Tensor& current, double decay);

}  // namespace oxbow::rl
