// SPDX-License-Identifier: Apache-2.0
// at::cuda::CUDAGraph over the tapes of capture.h, and the few functions of c10::cuda.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <map>
#include <mutex>

#include "tests/rehearsal/capture.h"
#include "tests/rehearsal/device_log.h"
#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace at::cuda {
namespace {

using namespace oxbow::rehearsal;  // NOLINT: the stand-in belongs to both.

// How many graphs use a pool.
struct Pools {
  std::mutex mutex;
  std::map<uint64_t, int> users;
};
Pools& AllPools() {
  static auto* const pools = new Pools;
  return *pools;
}
std::atomic<uint64_t> newest_pool = 0;

}  // namespace

MempoolId_t graph_pool_handle() { return {0, ++newest_pool}; }

struct CUDAGraph::Impl {
  c10::DeviceIndex device = 0;
  uint64_t pool = 0;
  std::shared_ptr<const Tape> tape;  // Shared with replays that are still to run.
};

CUDAGraph::CUDAGraph() : impl_(std::make_unique<Impl>()) {}

void CUDAGraph::capture_begin(MempoolId_t pool, cudaStreamCaptureMode) {
  impl_->device = CurrentDevice().index();
  TORCH_CHECK(CurrentStream(impl_->device).id() != 0,
              "CUDA graphs must be captured on a non-default stream.");
  BeginCapture(pool.second);
  impl_->pool = pool.second;
  Pools& pools = AllPools();
  const std::scoped_lock lock(pools.mutex);
  ++pools.users[pool.second];
}

void CUDAGraph::capture_end() { impl_->tape = std::make_shared<const Tape>(EndCapture()); }

void CUDAGraph::replay() {
  TORCH_CHECK(impl_->tape != nullptr, "CUDA graph: replay of what was not captured");
  TheLog().Kernel(impl_->device, "graph", 0, 0);
  if (TheSettings().mode == Mode::kDry) return;
  Enqueue(CurrentStream(impl_->device), [tape = impl_->tape] {
    for (const Task& task : *tape) task();
  });
}

CUDAGraph::~CUDAGraph() {
  if (impl_->pool == 0) return;
  Pools& pools = AllPools();
  const std::scoped_lock lock(pools.mutex);
  if (--pools.users[impl_->pool] == 0) DeviceMemory::Of(impl_->device).ReleasePool(impl_->pool);
}

}  // namespace at::cuda

namespace c10::cuda {

DeviceIndex device_count() {
  return static_cast<DeviceIndex>(oxbow::rehearsal::TheSettings().devices);
}
void set_device(DeviceIndex device) { oxbow::rehearsal::SetCurrentDevice(device); }
void device_synchronize() {
  oxbow::rehearsal::SynchronizeDevice(oxbow::rehearsal::CurrentDevice().index());
}

CUDAStream getStreamFromPool(bool, DeviceIndex device) {
  return CUDAStream(oxbow::rehearsal::NewStream(device));
}
CUDAStream getCurrentCUDAStream(DeviceIndex device) {
  return CUDAStream(oxbow::rehearsal::CurrentStream(device));
}

}  // namespace c10::cuda
