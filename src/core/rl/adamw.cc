#include "core/rl/adamw.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

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

AdamW::AdamW(AdamWOptions options, const at::Tensor& flat)
    : options_(options), first_(at::zeros_like(flat)), second_(at::zeros_like(flat)) {}

double AdamW::learning_rate() const {
  if (options_.warmup_updates <= 0) return options_.learning_rate;
  const double risen = static_cast<double>(updates_ + 1) / options_.warmup_updates;
  return options_.learning_rate * std::min(1., risen);
}

void AdamW::Step(at::Tensor& flat, const at::Tensor& grad, double rate_factor) {
  const at::NoGradGuard no_grad;
  const double rate = learning_rate() * rate_factor;
  ++updates_;
  const auto k = static_cast<double>(updates_);
  const double correction1 = 1 - std::pow(options_.beta1, k);
  const double correction2 = 1 - std::pow(options_.beta2, k);
  flat.mul_(1 - rate * options_.weight_decay);
  first_.lerp_(grad, 1 - options_.beta1);
  second_.mul_(options_.beta2).addcmul_(grad, grad, 1 - options_.beta2);
  const at::Tensor spread = second_.sqrt().div_(std::sqrt(correction2)).add_(options_.epsilon);
  flat.addcdiv_(first_, spread, -rate / correction1);
}

void AdamW::Restore(const at::Tensor& first, const at::Tensor& second, int64_t updates) {
  OXBOW_CHECK(first.sizes() == first_.sizes() && second.sizes() == second_.sizes())
      << "moments of shape " << first.sizes() << " and " << second.sizes();
  first_.copy_(first);
  second_.copy_(second);
  updates_ = updates;
}

double ClipGradNorm(at::Tensor& grad, double norm_max) {
  const double norm = grad.norm().item<double>();
  if (norm_max > 0 && norm > norm_max) grad.mul_(norm_max / (norm + 1e-6));
  return norm;
}

double EmaDecay(int64_t updates, double decay_max) {
  const auto k = static_cast<double>(updates);
  return std::min((1 + k) / (10 + k), decay_max);
}

void UpdateEma(at::Tensor& average, const at::Tensor& current, double decay) {
  const at::NoGradGuard no_grad;
  average.lerp_(current, 1 - decay);
}

}  // namespace oxbow::rl
