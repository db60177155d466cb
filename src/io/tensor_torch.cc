// SPDX-License-Identifier: Apache-2.0
#include "io/tensor_torch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr std::pair<DType, at::ScalarType> kTypes[] = {
    {DType::kF32, at::kFloat},  {DType::kF16, at::kHalf},  {DType::kBF16, at::kBFloat16},
    {DType::kF64, at::kDouble}, {DType::kI64, at::kLong},  {DType::kI32, at::kInt},
    {DType::kU8, at::kByte},    {DType::kBool, at::kBool}, {DType::kI8, at::kChar}};

// NaN and infinity propagate into one of the two.
bool AllFinite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  const auto [low, high] = at::aminmax(tensor);
  return std::isfinite(low.item<double>()) && std::isfinite(high.item<double>());
}

absl::StatusOr<at::Tensor> Loaded(const TensorHeader& header, std::string_view bytes,
                                  const std::optional<DType>& floats_as) {
  at::Tensor tensor = CopyOf(header.dtype, header.shape, bytes);
  if (!tensor.is_floating_point()) return tensor;
  if (!AllFinite(tensor)) return absl::DataLossError("holds NaN or infinity");
  if (!floats_as.has_value() || *floats_as == header.dtype) return tensor;
  tensor = tensor.to(ScalarTypeOf(*floats_as));
  if (WidthOf(*floats_as) <= WidthOf(header.dtype) && !AllFinite(tensor)) {
    return absl::FailedPreconditionError(absl::StrCat("values too large for ", NameOf(*floats_as),
                                                      ", load it as ", NameOf(header.dtype)));
  }
  return tensor;
}

}  // namespace

at::ScalarType ScalarTypeOf(DType dtype) {
  for (const auto& [ours, torchs] : kTypes) {
    if (ours == dtype) return torchs;
  }
  OXBOW_CHECK(false) << "dtype " << static_cast<int>(dtype);
  return at::kFloat;
}

DType DTypeOf(at::ScalarType type) {
  for (const auto& [ours, torchs] : kTypes) {
    if (torchs == type) return ours;
  }
  OXBOW_CHECK(false) << "tensor type without a wire name: " << at::toString(type);
  return DType::kF32;
}

at::Tensor CopyOf(DType dtype, const std::vector<int64_t>& shape, std::string_view bytes) {
  at::Tensor result = at::empty(shape, ScalarTypeOf(dtype));
  OXBOW_CHECK(result.nbytes() == bytes.size()) << bytes.size() << " for " << result.nbytes();
  if (!bytes.empty()) std::memcpy(result.mutable_data_ptr(), bytes.data(), bytes.size());
  if (dtype == DType::kBool) {
    // A byte other than 0 and 1 in a bool tensor is undefined behaviour for the kernels.
    auto* values = static_cast<uint8_t*>(result.mutable_data_ptr());
    for (size_t i = 0; i < bytes.size(); ++i) values[i] = values[i] != 0;
  }
  return result;
}

absl::StatusOr<at::Tensor> ToTorch(const TensorBytes& tensor) {
  OXBOW_RETURN_IF_ERROR(Validate(tensor));
  return CopyOf(tensor.dtype, tensor.shape, tensor.data);
}

TensorHeader HeaderOf(const at::Tensor& tensor) {
  return {.dtype = DTypeOf(tensor.scalar_type()), .shape = tensor.sizes().vec()};
}

TensorBytes FromTorch(const at::Tensor& tensor) {
  const at::Tensor source = tensor.detach().to(at::kCPU).contiguous();
  TensorBytes result{.dtype = DTypeOf(source.scalar_type()), .shape = source.sizes().vec()};
  result.data.assign(static_cast<const char*>(source.const_data_ptr()), source.nbytes());
  return result;
}

absl::StatusOr<std::map<std::string, at::Tensor>> AllToTorch(
    std::map<std::string, TensorBytes> tensors) {
  std::map<std::string, at::Tensor> result;
  while (!tensors.empty()) {
    const auto node = tensors.extract(tensors.begin());
    auto tensor = ToTorch(node.mapped());
    if (!tensor.ok()) return Annotate(tensor.status(), "tensor '" + node.key() + "'");
    result.emplace_hint(result.end(), node.key(), *std::move(tensor));
  }
  return result;
}

std::map<std::string, TensorBytes> AllFromTorch(const std::map<std::string, at::Tensor>& tensors) {
  std::map<std::string, TensorBytes> result;
  for (const auto& [name, tensor] : tensors) result.emplace(name, FromTorch(tensor));
  return result;
}

absl::StatusOr<at::Tensor> LoadTensor(const WeightFiles& files, const std::string& name,
                                      const std::optional<DType>& floats_as) {
  const at::NoGradGuard no_grad;
  auto tensor = Loaded(files.headers().at(name), files.BytesOf(name), floats_as);
  files.Release(name);  // Or a model would be in memory twice at the end.
  if (tensor.ok()) return tensor;
  return Annotate(tensor.status(), absl::StrCat(files.FileOf(name), ": tensor '", name, "'"));
}

absl::StatusOr<std::map<std::string, at::Tensor>> LoadTensors(const WeightFiles& files,
                                                              const TensorLoading& loading) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, header] : files.headers()) {
    if (loading.wanted && !loading.wanted(name)) continue;
    OXBOW_ASSIGN_OR_RETURN(const at::Tensor tensor, LoadTensor(files, name, loading.floats_as));
    tensors.emplace_hint(tensors.end(), name, tensor.to(loading.device));
  }
  return tensors;
}

at::Tensor NarrowedExactly(const at::Tensor& values) {
  if (values.scalar_type() != at::kFloat) return values;
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor narrow = values.to(type);
    if (at::equal(narrow.to(at::kFloat), values)) return narrow;
  }
  return values;
}

}  // namespace oxbow::io
