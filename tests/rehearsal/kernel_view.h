// SPDX-License-Identifier: Apache-2.0
// Tensors as kernels see them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

namespace oxbow::rehearsal {

// Throws what CUDA throws for an operator whose tensors are on two devices.
[[noreturn]] void RefuseTwoDevices(const std::string& name, at::Device one, at::Device other);

// A device tensor's place, shape and type. Owns nothing, as a kernel's arguments own nothing.
class KernelView {
 public:
  // Throws what CUDA throws for a tensor that is on no GPU.
  explicit KernelView(const at::Tensor& device_tensor);
  // A CPU tensor over the kernel side of the device's memory.
  at::Tensor Tensor() const;

 private:
  void* storage_;
  size_t storage_bytes_;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_;
  caffe2::TypeMeta type_;
  bool conjugate_;  // Values are to be read so.
};

inline bool IsOnDevice(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

// The same shape, strides and type on the meta device, whose operators find shapes and compute
// nothing.
at::Tensor OnMeta(const at::Tensor& tensor);

// A fresh device tensor of another tensor's shape, strides and type.
at::Tensor EmptyLike(const at::Tensor& shaped, at::Device device);
at::Tensor Empty(at::IntArrayRef sizes, at::ScalarType type, at::Device device);
// Another view of `base`'s storage, with the sizes, strides and offset of `shaped`.
at::Tensor ViewOf(const at::Tensor& base, const at::Tensor& shaped, int64_t offset);

// Bytes that a kernel moves to read or write the tensor once: expanded dimensions count once.
double BytesOf(const at::Tensor& tensor);

// While a kernel runs, and while shapes are inferred: no autograd, no autocast, no graph.
class KernelScope {
 public:
  KernelScope();

 private:
  const c10::impl::ExcludeDispatchKeyGuard no_autograd_, no_autocast_;
};

}  // namespace oxbow::rehearsal
