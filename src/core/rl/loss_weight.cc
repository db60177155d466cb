// SPDX-License-Identifier: Apache-2.0
#include "core/rl/loss_weight.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace oxbow::rl {
namespace {

constexpr double kLogMax = 20;  // Largest |log W|, before the exponential.

double RawWeight(StepWeight kind, const flow::StepKernel& kernel) {
  switch (kind) {
    case StepWeight::kNone:
      return 1;
    case StepWeight::kNoise:
      return kernel.scale;
    case StepWeight::kSensitivity:
      return 1 / std::sqrt(flow::KernelSensitivity(kernel));
  }
  OXBOW_CHECK(false) << "step weight " << static_cast<int>(kind);
}

}  // namespace

SequenceWeight ComputeSequenceWeight(const std::vector<double>& log_prob_old,
                                     const std::vector<double>& log_prob_behaviour, double cap) {
  OXBOW_CHECK(log_prob_old.size() == log_prob_behaviour.size())
      << "log-probs of " << log_prob_old.size() << " and " << log_prob_behaviour.size() << " steps";
  double sum = 0;
  for (size_t i = 0; i < log_prob_old.size(); ++i) sum += log_prob_old[i] - log_prob_behaviour[i];
  SequenceWeight result{.log_weight = sum};
  if (!std::isfinite(result.log_weight)) {
    result.evict = true;
    return result;
  }
  const double weight = std::exp(std::clamp(result.log_weight, -kLogMax, kLogMax));
  result.truncated = weight > cap;
  result.weight = std::min(weight, cap);
  return result;
}

double EffectiveSampleSize(const std::vector<double>& weights) {
  double sum = 0;
  double squares = 0;
  for (const double weight : weights) {
    sum += weight;
    squares += weight * weight;
  }
  return squares > 0 ? sum * sum / squares : 0;
}

std::vector<double> StepWeights(StepWeight kind, const flow::SamplingSpec& spec) {
  std::vector<double> weights(static_cast<size_t>(std::max(0, spec.steps())), 0);
  double sum = 0;
  int trained = 0;
  for (int i = 0; i < spec.steps(); ++i) {
    const flow::StepKernel kernel = flow::KernelAt(spec, i);
    if (kernel.scale <= 0) continue;
    sum += weights[static_cast<size_t>(i)] = RawWeight(kind, kernel);
    ++trained;
  }
  for (double& weight : weights) weight = sum > 0 ? weight * trained / sum : 0;
  return weights;
}

}  // namespace oxbow::rl
