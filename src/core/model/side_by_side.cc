// SPDX-License-Identifier: Apache-2.0
#include "core/model/side_by_side.h"

#include <ATen/ATen.h>
#include <c10/core/TensorImpl.h>

#include <utility>

namespace oxbow::model {
namespace {

bool Follows(const at::Tensor& next, const at::Tensor& tensor) {
  return next.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl() &&
         next.storage_offset() == tensor.storage_offset() + tensor.numel() &&
         next.scalar_type() == tensor.scalar_type() && next.dim() == tensor.dim() &&
         next.dim() > 0 && next.sizes().slice(1) == tensor.sizes().slice(1) &&
         next.is_contiguous() && tensor.is_contiguous();
}

}  // namespace

NamedTensors PlacedSideBySide(const std::vector<std::vector<std::string>>& groups,
                              const Shapes& shapes, at::TensorOptions options) {
  NamedTensors places;
  for (const std::vector<std::string>& group : groups) {
    std::vector<int64_t> sizes = shapes.at(group[0]);
    sizes[0] = 0;
    for (const std::string& name : group) sizes[0] += shapes.at(name)[0];
    const at::Tensor all = at::empty(sizes, options);
    int64_t from = 0;
    for (const std::string& name : group) {
      const int64_t count = shapes.at(name)[0];
      places[name] = all.narrow(0, from, count);
      from += count;
    }
  }
  return places;
}

bool LieSideBySide(at::ArrayRef<at::Tensor> tensors) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (!Follows(tensors[i], tensors[i - 1])) return false;
  }
  return tensors.size() > 1;
}

at::Tensor AsOne(at::ArrayRef<at::Tensor> tensors) {
  const at::Tensor& first = tensors[0];
  std::vector<int64_t> sizes = first.sizes().vec();
  for (const at::Tensor& next : tensors.slice(1)) sizes[0] += next.size(0);
  auto one = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(first.storage()), first.key_set(), first.dtype());
  one.unsafeGetTensorImpl()->set_storage_offset(first.storage_offset());
  one.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return one;
}

}  // namespace oxbow::model
