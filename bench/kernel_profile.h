// SPDX-License-Identifier: Apache-2.0
// The kernels that a piece of work starts on a GPU, and how long each runs (CUPTI, through
// PyTorch's profiler).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace oxbow::bench {

struct KernelTime {
  std::string name;
  int64_t launches = 0;
  double milliseconds = 0;  // All launches together.
};

// Runs `work` once. By falling time; empty on a CPU. Copies and fills count as kernels.
std::vector<KernelTime> ProfileKernels(const std::function<void()>& work);

}  // namespace oxbow::bench
