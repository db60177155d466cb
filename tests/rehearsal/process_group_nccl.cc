// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
// After the stand-in, which is found before the wheel's header of that name.
#include <ATen/ATen.h>
#include <unistd.h>
#define USE_C10D_GLOO
#include <array>
#include <functional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "tests/rehearsal/device_log.h"
#include "tests/rehearsal/kernel_view.h"
#include "tests/rehearsal/streams.h"

namespace c10d {
namespace {

using namespace oxbow::rehearsal;  // NOLINT: the stand-in belongs to both.

// Gloo's work on the kernel side of device tensors, which it keeps.
class DeviceWork final : public Work {
 public:
  // `finish` is called once, by the first that waits for what has ended well.
  DeviceWork(c10::intrusive_ptr<Work> gloo, std::vector<at::Tensor> tensors,
             std::function<void()> finish = {})
      : gloo_(std::move(gloo)), tensors_(std::move(tensors)), finish_(std::move(finish)) {}

  bool isCompleted() override { return gloo_->isCompleted(); }
  bool isSuccess() const override { return gloo_->isSuccess(); }
  std::exception_ptr exception() const override { return gloo_->exception(); }
  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = gloo_->wait(timeout);
    if (const auto finish = std::exchange(finish_, {})) finish();
    return done;
  }

 private:
  const c10::intrusive_ptr<Work> gloo_;
  const std::vector<at::Tensor> tensors_;
  std::function<void()> finish_;
};

std::string GpuName(at::Device device) {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  return c10::str(host.data(), " ", device);
}

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

void RefuseASharedGpu(Store& store, int rank, int size, const std::string& mine) {
  store.set(c10::str("gpu", rank), Bytes(mine));
  for (int other = 0; other < size; ++other) {
    const std::vector<uint8_t> theirs = store.get(c10::str("gpu", other));
    TORCH_CHECK(other == rank || theirs != Bytes(mine), "NCCL error: invalid usage: Duplicate GPU ",
                "detected : rank ", rank, " and rank ", other, " both on CUDA device ", mine);
  }
}

}  // namespace

ProcessGroupNCCL::ProcessGroupNCCL(const c10::intrusive_ptr<Store>& store, int rank, int size,
                                   const c10::intrusive_ptr<Options>& options)
    : Backend(rank, size), device_(CurrentDevice()) {
  const auto own = c10::make_intrusive<PrefixStore>("rehearsal", store);
  RefuseASharedGpu(*own, rank, size, GpuName(device_));
  auto gloo = ProcessGroupGloo::Options::create(options->timeout);
  gloo->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  gloo->threads = 1;
  gloo_ = c10::make_intrusive<ProcessGroupGloo>(own, rank, size, gloo);
}

ProcessGroupNCCL::~ProcessGroupNCCL() = default;

at::Tensor ProcessGroupNCCL::KernelSide(const char* operation, const at::Tensor& tensor) const {
  TORCH_CHECK(tensor.is_cuda(), operation, ": No backend type associated with device type ",
              tensor.device().type(), ": NCCL takes tensors of a GPU");
  TORCH_CHECK(tensor.device() == device_, operation, ": a tensor on ", tensor.device(),
              " for a communicator of ", device_);
  TORCH_CHECK(tensor.is_contiguous(), operation, ": Tensors must be contiguous");
  return KernelView(tensor).Tensor();
}

// The others get what the current stream has still to write.
void ProcessGroupNCCL::Begin(const char* operation, const std::vector<at::Tensor>& tensors) const {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += BytesOf(tensor);
  TheLog().Kernel(device_.index(), operation, bytes, 0);
  Synchronize(CurrentStream(device_.index()));
}

c10::intrusive_ptr<Work> ProcessGroupNCCL::broadcast(std::vector<at::Tensor>& tensors,
                                                     const BroadcastOptions& options) {
  std::vector<at::Tensor> sides = {KernelSide("broadcast", tensors.at(0))};
  Begin("nccl::broadcast", tensors);
  return c10::make_intrusive<DeviceWork>(gloo_->broadcast(sides, options), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupNCCL::allreduce(std::vector<at::Tensor>& tensors,
                                                     const AllreduceOptions& options) {
  std::vector<at::Tensor> sides = {KernelSide("allreduce", tensors.at(0))};
  Begin("nccl::allreduce", tensors);
  return c10::make_intrusive<DeviceWork>(gloo_->allreduce(sides, options), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupNCCL::reduce(std::vector<at::Tensor>& tensors,
                                                  const ReduceOptions& options) {
  std::vector<at::Tensor> sides = {KernelSide("reduce", tensors.at(0))};
  Begin("nccl::reduce", tensors);
  return c10::make_intrusive<DeviceWork>(gloo_->reduce(sides, options), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupNCCL::_allgather_base(at::Tensor& to, at::Tensor& from,
                                                           const AllgatherOptions& options) {
  at::Tensor all = KernelSide("allgather", to), mine = KernelSide("allgather", from);
  Begin("nccl::allgather", {to, from});
  return c10::make_intrusive<DeviceWork>(gloo_->_allgather_base(all, mine, options),
                                         std::vector<at::Tensor>{to, from});
}

// Gloo's own ends only for one who waits, and callers poll. So parts are exchanged, and added in
// rank order.
c10::intrusive_ptr<Work> ProcessGroupNCCL::_reduce_scatter_base(at::Tensor& to, at::Tensor& from,
                                                                const ReduceScatterOptions&) {
  const at::Tensor sum = KernelSide("reduce_scatter", to);
  at::Tensor mine = KernelSide("reduce_scatter", from).view(-1);
  Begin("nccl::reduce_scatter", {to, from});
  at::Tensor parts = at::empty_like(mine);
  std::vector<int64_t> equal;
  const auto add = [sum, parts, size = getSize()] {
    const KernelScope scope;
    sum.copy_(parts.view({size, -1}).sum(0).view_as(sum));
  };
  return c10::make_intrusive<DeviceWork>(gloo_->alltoall_base(parts, mine, equal, equal),
                                         std::vector<at::Tensor>{to, from}, add);
}

}  // namespace c10d
