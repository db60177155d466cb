// SPDX-License-Identifier: Apache-2.0
#include "bench/kernel_profile.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>
#include <set>

namespace oxbow::bench {

std::vector<KernelTime> ProfileKernels(const std::function<void()>& work) {
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU,
                                                       profiler::ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  work();
  const auto result = profiler::disableProfiler();
  std::map<std::string, KernelTime> by_name;
  for (const auto& event : result->events()) {
    if (event.deviceType() == c10::DeviceType::CPU) continue;
    KernelTime& kernel = by_name[event.name()];
    kernel.name = event.name();
    ++kernel.launches;
    kernel.milliseconds += static_cast<double>(event.durationNs()) / 1e6;
  }
  std::vector<KernelTime> kernels;
  for (auto& [name, kernel] : by_name) kernels.push_back(std::move(kernel));
  std::sort(kernels.begin(), kernels.end(), [](const KernelTime& one, const KernelTime& two) {
    return one.milliseconds > two.milliseconds;
  });
  return kernels;
}

}  // namespace oxbow::bench
