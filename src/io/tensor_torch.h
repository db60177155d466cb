// Typed bytes <-> at::Tensor.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "io/safetensors_header.h"
#include "io/tensor_bytes.h"

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::io {

at::ScalarType ScalarTypeOf(DType dtype);

// A tensor of its own on the CPU. Requires as many bytes as dtype and shape take.
at::Tensor CopyOf(DType dtype, const std::vector<int64_t>& shape, std::string_view bytes);

// Copies. The result owns its memory, is contiguous and on the CPU. Fails if the bytes do not fit
// the shape.
absl::StatusOr<at::Tensor> ToTorch(const TensorBytes& tensor);

// Dtype and shape. Requires a dtype of DType.
TensorHeader HeaderOf(const at::Tensor& tensor);

// Copies to contiguous CPU bytes. Requires a dtype of DType.
TensorBytes FromTorch(const at::Tensor& tensor);

// The same for named tensors. The first consumes its argument, so that no two copies of a large
// model are alive at once.
absl::StatusOr<std::map<std::string, at::Tensor>> AllToTorch(
    std::map<std::string, TensorBytes> tensors);
std::map<std::string, TensorBytes> AllFromTorch(const std::map<std::string, at::Tensor>& tensors);

}  // namespace oxbow::io
