// SPDX-License-Identifier: Apache-2.0
// Making, viewing and resizing device tensors.
#include <ATen/ATen.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/library.h>

#include "tests/rehearsal/kernel_view.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {
namespace {

at::Device Chosen(std::optional<at::Device> device) {
  return device && device->has_index() ? *device : CurrentDevice();
}

at::Tensor EmptyTensor(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                       std::optional<at::Layout>, std::optional<at::Device> device,
                       std::optional<bool>, std::optional<at::MemoryFormat> format) {
  at::Tensor made = Empty(sizes, c10::dtype_or_default(type), Chosen(device));
  if (format && *format != at::MemoryFormat::Contiguous && *format != at::MemoryFormat::Preserve) {
    made.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return made;
}

at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        std::optional<at::ScalarType> type, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>) {
  return EmptyLike(
      at::empty_strided(sizes, strides,
                        at::TensorOptions(at::kMeta).dtype(c10::dtype_or_default(type))),
      Chosen(device));
}

// Keeps what the storage held, as CUDA's resize does.
const at::Tensor& Resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!format || *format == at::MemoryFormat::Contiguous,
              "rehearsal device: resize_ to another memory format");
  auto* const tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(sizes);
  const size_t bytes =
      (static_cast<size_t>(tensor->storage_offset()) + static_cast<size_t>(tensor->numel())) *
      tensor->itemsize();
  const c10::Storage& storage = tensor->storage();
  if (bytes <= storage.nbytes()) return self;
  const at::Tensor before = ViewOf(self,
                                   at::empty({static_cast<int64_t>(storage.nbytes())},
                                             at::TensorOptions(at::kMeta).dtype(at::kByte)),
                                   0);
  const at::Tensor after = Empty({static_cast<int64_t>(bytes)}, at::kByte, self.device());
  if (before.numel() > 0) after.narrow(0, 0, before.numel()).copy_(before);
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
      std::move(after.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  return self;
}

void RecordStream(at::Tensor& self, at::Stream stream) {
  c10::getDeviceAllocator(at::kCUDA)->recordStream(self.storage().data_ptr(), stream);
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", TORCH_FN(EmptyTensor));
  library.impl("empty_strided", TORCH_FN(EmptyStrided));
  library.impl("resize_", TORCH_FN(Resize));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("record_stream", TORCH_FN(RecordStream));
}

}  // namespace
}  // namespace oxbow::rehearsal
