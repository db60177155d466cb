// NCCL on GPU, one device per rank.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>

#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "core/parallel/process_group.h"

namespace oxbow::parallel {

bool HasNccl() { return true; }

c10::intrusive_ptr<c10d::Backend> MakeNcclGroup(const GroupOptions& options) {
  const auto devices = c10::cuda::device_count();
  TORCH_CHECK(options.device.index() < devices, "no device ", options.device, ": this machine has ",
              static_cast<int>(devices), " GPUs");
  c10::cuda::set_device(options.device.index());
  auto nccl = c10d::ProcessGroupNCCL::Options::create();
  // NCCL's watchdog ends the process; ours returns an error. It is to find nothing left to do.
  nccl->timeout = absl::ToChronoMilliseconds(2 * options.timeout + absl::Seconds(30));
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(options.store, options.rank, options.size,
                                                     nccl);
}

}  // namespace oxbow::parallel
