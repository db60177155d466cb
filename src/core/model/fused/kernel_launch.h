// SPDX-License-Identifier: Apache-2.0
// Tensors as this folder's kernels take them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "core/model/fused/fused_kernels.h"

namespace oxbow::model::fused {

inline bool IsElement(at::ScalarType type) { return type == at::kFloat || type == at::kBFloat16; }

inline Element TypeOf(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat ? Element::kFloat : Element::kBFloat16;
}

// On a GPU, of a type that kernels read, and aligned for loads of so many bytes.
inline bool KernelFits(const at::Tensor& x, uintptr_t alignment = 16) {
  return x.is_cuda() && IsElement(x.scalar_type()) &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % alignment == 0;
}

inline bool Trains(const at::Tensor& x) {
  return at::GradMode::is_enabled() && x.defined() && x.requires_grad();
}

// Without data where x is undefined.
inline Values ValuesOf(const at::Tensor& x) {
  return x.defined() ? Values{x.const_data_ptr(), TypeOf(x)} : Values();
}
inline Results ResultsOf(const at::Tensor& x) { return {x.mutable_data_ptr(), TypeOf(x)}; }

// The device and the stream that PyTorch uses now, for launches.
struct Launch {
  explicit Launch(const at::Tensor& x)
      : guard(x.device()), stream(c10::cuda::getCurrentCUDAStream(x.device().index())) {}
  // Throws what c10 throws: nothing between a launch and this does.
  ~Launch() noexcept(false) { C10_CUDA_KERNEL_LAUNCH_CHECK(); }
  const c10::cuda::CUDAGuard guard;
  const cudaStream_t stream;
};

}  // namespace oxbow::model::fused
