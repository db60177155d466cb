#include "core/flow/truncation.h"

namespace oxbow::flow {

std::vector<double> SensitivityTable(const SamplingSpec& spec) {
  std::vector<double> table;
  table.reserve(static_cast<size_t>(spec.steps()));
  for (int i = 0; i < spec.steps(); ++i) table.push_back(KernelSensitivity(KernelAt(spec, i)));
  return table;
}

int KeptSteps(const SamplingSpec& spec, double kc_max) {
  int kept = 0;
  for (int i = 0; i < spec.steps(); ++i) {
    const StepKernel kernel = KernelAt(spec, i);
    if (kernel.scale <= 0) continue;
    if (KernelSensitivity(kernel) >= kc_max) break;
    kept = i + 1;
  }
  return kept;
}

}  // namespace oxbow::flow
