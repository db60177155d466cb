// SPDX-License-Identifier: Apache-2.0
#include "core/model/cuda_graphs.h"

#include "base/check.h"

// Set by the build where CUDA is compiled in.
#if OXBOW_HAS_CUDA_GRAPHS
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <utility>
#endif

namespace oxbow::model {

bool HasCudaGraphs() { return OXBOW_HAS_CUDA_GRAPHS; }

absl::Status CheckGraphs(at::Device device) {
  if (!device.is_cuda()) {
    return absl::InvalidArgumentError(
        "model.cuda_graphs needs a GPU: set it to false, or the device to cuda: " + device.str());
  }
  if (!HasCudaGraphs()) {
    return absl::UnimplementedError(
        "this build has no CUDA graphs: build it with -DOXBOW_CUDA=ON, or set model.cuda_graphs to "
        "false");
  }
  return absl::OkStatus();
}

#if OXBOW_HAS_CUDA_GRAPHS
// CUDA graphs as PyTorch captures them (torch.cuda.graph), on a stream of the recorder's own.
namespace {

// The first call makes handles and plans, the second runs as all later ones will.
constexpr int kWarmUps = 2;

// Where the intermediate results of all works of a recorder lie. The allocator forgets a pool with
// the last graph that used it and does not want to see it again, so each set of works that are
// alive together has one.
struct Pool {
  const at::cuda::MempoolId_t id = at::cuda::graph_pool_handle();
};

class CudaWork final : public RecordedWork {
 public:
  CudaWork(at::Device device, std::shared_ptr<const Pool> pool)
      : device_(device), pool_(std::move(pool)) {}

  // Requires the recorder's stream to be the current one, with nothing left to do.
  void Record(const std::function<at::Tensor()>& work) {
    // Threads that fetch weights meanwhile may take and free memory as they like.
    graph_.capture_begin(pool_->id, cudaStreamCaptureModeThreadLocal);
    try {
      output_ = work();
    } catch (...) {
      EndBrokenCapture();
      throw;
    }
    graph_.capture_end();
  }

  const at::Tensor& Replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.replay();
    return output_;
  }

 private:
  // Without it the allocator waits for the capture's end for ever. The caller rethrows what broke.
  void EndBrokenCapture() {
    try {
      graph_.capture_end();
      return;
    } catch (const std::exception&) {  // CUDA refuses before the allocator hears of it.
    }
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), pool_->id);
    } catch (const std::exception&) {
    }
  }

  const at::Device device_;
  const std::shared_ptr<const Pool> pool_;  // Shared with the other works.
  at::cuda::CUDAGraph graph_;
  at::Tensor output_;
};

class CudaGraphRecorder final : public GraphRecorder {
 public:
  explicit CudaGraphRecorder(at::Device device)
      : device_(device), stream_(c10::cuda::getStreamFromPool(false, device.index())) {}

  std::unique_ptr<RecordedWork> Record(const std::function<at::Tensor()>& work) override {
    const c10::cuda::CUDAGuard device(device_);
    c10::cuda::device_synchronize();  // Inputs and weights may still be on their way.
    std::shared_ptr<const Pool> pool = pool_.lock();
    if (pool == nullptr) pool_ = pool = std::make_shared<const Pool>();
    auto recorded = std::make_unique<CudaWork>(device_, std::move(pool));
    // Warm-up and capture on one stream: cuBLAS keeps a workspace for each, and it must be there
    // before the capture, or it would lie in the pool that every replay writes over.
    const c10::cuda::CUDAStreamGuard on_own_stream(stream_);
    for (int i = 0; i < kWarmUps; ++i) (void)work();
    stream_.synchronize();
    // Memory belongs to a stream: what the warm-up took would lie idle from now on.
    c10::cuda::CUDACachingAllocator::emptyCache();
    try {
      recorded->Record(work);
    } catch (...) {
      pool_.reset();  // The allocator counts a broken capture as a user for ever.
      throw;
    }
    return recorded;
  }

 private:
  const at::Device device_;
  const c10::cuda::CUDAStream stream_;
  std::weak_ptr<const Pool> pool_;
};

}  // namespace

std::unique_ptr<GraphRecorder> MakeCudaGraphRecorder(at::Device device) {
  const absl::Status status = CheckGraphs(device);
  OXBOW_CHECK(status.ok()) << status.ToString();
  return std::make_unique<CudaGraphRecorder>(device);
}
#else
std::unique_ptr<GraphRecorder> MakeCudaGraphRecorder(at::Device device) {
  OXBOW_CHECK(false) << "a build without CUDA has no graphs on " << device.str();
  return nullptr;
}
#endif

}  // namespace oxbow::model
