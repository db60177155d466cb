// Typed bytes <-> at::Tensor.
#pragma once

#include "absl/status/statusor.h"
#include "io/tensor_bytes.h"

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::io {

// Copies. The result owns its memory, is contiguous and on the CPU. Fails if the bytes do not fit
// the shape.
absl::StatusOr<at::Tensor> ToTorch(const TensorBytes& tensor);

// Copies to contiguous CPU bytes. Requires a dtype of DType.
TensorBytes FromTorch(const at::Tensor& tensor);

}  // namespace oxbow::io
