// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "c10/cuda/CUDAStream.h"

namespace c10::cuda {

class CUDAGuard {
 public:
  explicit CUDAGuard(Device device) : guard_(device) {}

 private:
  const DeviceGuard guard_;
};

class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(Stream stream) : guard_(stream) {}

 private:
  const StreamGuard guard_;
};

}  // namespace c10::cuda
