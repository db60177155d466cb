// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/kernel_view.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/settings.h"

namespace oxbow::rehearsal {
namespace {

at::Tensor Shaped(c10::Storage storage, c10::DispatchKey key, caffe2::TypeMeta type,
                  at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

}  // namespace

void RefuseTwoDevices(const std::string& name, at::Device one, at::Device other) {
  TORCH_CHECK(false, name,
              ": Expected all tensors to be on the same device, but found at least two devices, ",
              one, " and ", other, "!");
}

KernelView::KernelView(const at::Tensor& device_tensor)
    : storage_(nullptr),
      storage_bytes_(device_tensor.storage().nbytes()),
      sizes_(device_tensor.sizes().vec()),
      strides_(device_tensor.strides().vec()),
      offset_(device_tensor.storage_offset()),
      type_(device_tensor.dtype()),
      conjugate_(device_tensor.is_conj()) {
  if (!device_tensor.is_cuda()) {
    RefuseTwoDevices("a kernel", at::Device(at::kCUDA), device_tensor.device());
  }
  const void* const address = device_tensor.storage().data();
  if (address != nullptr && TheSettings().mode != Mode::kDry) {
    storage_ = DeviceMemory::Of(device_tensor.device().index()).KernelSide(address);
  }
}

at::Tensor KernelView::Tensor() const {
  c10::Storage storage(c10::Storage::use_byte_size_t(), storage_bytes_,
                       c10::DataPtr(storage_, at::kCPU), nullptr, /*resizable=*/false);
  at::Tensor tensor =
      Shaped(std::move(storage), c10::DispatchKey::CPU, type_, sizes_, strides_, offset_);
  if (conjugate_) tensor._set_conj(true);
  return tensor;
}

at::Tensor OnMeta(const at::Tensor& tensor) {
  at::Tensor meta =
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return meta;
}

at::Tensor EmptyLike(const at::Tensor& shaped, at::Device device) {
  const c10::DeviceGuard guard(device);
  return at::detail::empty_strided_generic(
      shaped.sizes(), shaped.strides(), c10::GetAllocator(at::kCUDA),
      c10::DispatchKeySet(c10::DispatchKey::CUDA), shaped.scalar_type());
}

at::Tensor Empty(at::IntArrayRef sizes, at::ScalarType type, at::Device device) {
  const c10::DeviceGuard guard(device);
  return at::detail::empty_generic(sizes, c10::GetAllocator(at::kCUDA),
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA), type, std::nullopt);
}

at::Tensor ViewOf(const at::Tensor& base, const at::Tensor& shaped, int64_t offset) {
  return Shaped(base.storage(), c10::DispatchKey::CUDA, shaped.dtype(), shaped.sizes(),
                shaped.strides(), offset);
}

double BytesOf(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return 0;
  auto bytes = static_cast<double>(tensor.element_size());
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.stride(i) != 0) bytes *= static_cast<double>(tensor.size(i));
  }
  return bytes;
}

KernelScope::KernelScope()
    : no_autograd_(c10::autograd_dispatch_keyset_with_ADInplaceOrView),
      no_autocast_(c10::autocast_dispatch_keyset) {}

}  // namespace oxbow::rehearsal
