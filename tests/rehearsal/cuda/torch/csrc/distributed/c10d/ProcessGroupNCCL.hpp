// NCCL's process group of the rehearsal device: NCCL's rules, and Gloo over the kernel side of the
// device's memory.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace c10d {

class ProcessGroupNCCL : public Backend {
 public:
  struct Options : Backend::Options {
    Options() : Backend::Options("nccl") {}
    static c10::intrusive_ptr<Options> create() { return c10::make_intrusive<Options>(); }
  };

  // The rank's GPU is the current device. Throws if another rank has the same one.
  ProcessGroupNCCL(const c10::intrusive_ptr<Store>& store, int rank, int size,
                   const c10::intrusive_ptr<Options>& options);
  ~ProcessGroupNCCL() override;

  const std::string getBackendName() const override { return "nccl"; }
  // Throw unless every tensor is contiguous and on the rank's GPU.
  c10::intrusive_ptr<Work> broadcast(std::vector<at::Tensor>& tensors,
                                     const BroadcastOptions& options) override;
  c10::intrusive_ptr<Work> allreduce(std::vector<at::Tensor>& tensors,
                                     const AllreduceOptions& options) override;
  c10::intrusive_ptr<Work> reduce(std::vector<at::Tensor>& tensors,
                                  const ReduceOptions& options) override;
  c10::intrusive_ptr<Work> _allgather_base(at::Tensor& to, at::Tensor& from,
                                           const AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> _reduce_scatter_base(at::Tensor& to, at::Tensor& from,
                                                const ReduceScatterOptions& options) override;

 private:
  at::Tensor KernelSide(const char* operation, const at::Tensor& tensor) const;
  void Begin(const char* operation, const std::vector<at::Tensor>& tensors) const;

  const at::Device device_;
  c10::intrusive_ptr<Backend> gloo_;
};

}  // namespace c10d
