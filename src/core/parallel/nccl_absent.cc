// Stands in for nccl_backend.cc in builds without CUDA.
#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "core/parallel/process_group.h"

namespace oxbow::parallel {

bool HasNccl() { return false; }

c10::intrusive_ptr<c10d::Backend> MakeNcclGroup(const GroupOptions&) {
  TORCH_CHECK(false, "this build has no NCCL");
}

}  // namespace oxbow::parallel
