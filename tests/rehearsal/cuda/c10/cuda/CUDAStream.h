// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Stream.h>
#include <cuda_runtime_api.h>

namespace c10::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(Stream stream) : stream_(stream) {}
  operator Stream() const { return stream_; }        // NOLINT: as LibTorch's.
  operator cudaStream_t() const { return nullptr; }  // NOLINT: stand-ins of kernels ask no stream.
  void synchronize() const { stream_.synchronize(); }

 private:
  Stream stream_;
};

CUDAStream getStreamFromPool(bool is_high_priority, DeviceIndex device);
CUDAStream getCurrentCUDAStream(DeviceIndex device);

}  // namespace c10::cuda
