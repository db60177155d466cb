// SPDX-License-Identifier: Apache-2.0
// CUDA graphs of the rehearsal device: tapes of kernels with the addresses they were captured with.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <utility>

namespace at::cuda {

using MempoolId_t = c10::MempoolId_t;

MempoolId_t graph_pool_handle();

// As LibTorch's: a pool's memory is the graphs' that were captured into it, until the last is gone.
class CUDAGraph {
 public:
  CUDAGraph();
  ~CUDAGraph();
  CUDAGraph(const CUDAGraph&) = delete;
  CUDAGraph& operator=(const CUDAGraph&) = delete;

  // Kernels that this thread launches from now on are recorded and do not run.
  void capture_begin(MempoolId_t pool, cudaStreamCaptureMode mode);
  void capture_end();
  // On the current stream. What was captured reads and writes where it did.
  void replay();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace at::cuda
