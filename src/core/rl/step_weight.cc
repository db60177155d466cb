#include "core/rl/step_weight.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace oxbow::rl {
namespace {

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
