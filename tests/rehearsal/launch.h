// SPDX-License-Identifier: Apache-2.0
// The one way in which work reaches a device.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "tests/rehearsal/kernel_view.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {

struct Launch {
  std::string name;                       // The operator's.
  std::vector<at::Tensor> reads, writes;  // Device tensors.
  double flop = 0;                        // A multiplication and its addition are two.
};

// True where a kernel may only be enqueued, so that its results' shapes must be known without it.
bool LaunchesAreDeferred();

// Counts the kernel and enqueues `work` on the current stream of the device. `work` holds no device
// tensor, only views, and runs in a KernelScope.
void Run(const Launch& launch, Task work);
// The same for a kernel that takes nothing from another GPU: throws what CUDA throws for that.
void RunOnOneDevice(const Launch& launch, Task work);

// Counts a kernel that has run.
void Count(const Launch& launch);

}  // namespace oxbow::rehearsal
