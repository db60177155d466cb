// SPDX-License-Identifier: Apache-2.0
// Typed bytes <-> at::Tensor, those of mapped weight files among them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "io/safetensors.h"
#include "io/tensor_bytes.h"
#include "io/weight_files.h"

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

struct TensorLoading {
  // Floating-point tensors are converted to this; integers and bools stay what they are.
  std::optional<DType> floats_as = DType::kF32;
  // Tensors to read, by name; all where empty. The others' bytes are never touched.
  std::function<bool(const std::string& name)> wanted = {};
  // Each goes there before the next is read.
  at::Device device = at::kCPU;
};

// One of them, on the CPU; its bytes leave memory again. Floating-point tensors are converted to
// `floats_as`, if there is one. Dies if there is no such tensor; errors as LoadTensors'.
absl::StatusOr<at::Tensor> LoadTensor(const WeightFiles& files, const std::string& name,
                                      const std::optional<DType>& floats_as);

// Tensors of weight files, straight from the mapped file into memory of their own.
//
// kDataLoss names a tensor that holds NaN or infinity, kFailedPrecondition one whose values do not
// fit the smaller type asked for.
absl::StatusOr<std::map<std::string, at::Tensor>> LoadTensors(const WeightFiles& files,
                                                              const TensorLoading& loading = {});

// Float32 values in 16 bits, where that loses nothing: the output of text encoders was computed in
// 16 bits as a rule, and then needs half the room on disk and on the wire. The values as f16 if
// each is one, else as bf16 if each is one, else as they are. A tensor of another type than float32
// is returned as it is. Converting the result back to float32 gives the same bits, but for the
// payload of values that are not numbers: a tensor with one stays float32.
at::Tensor NarrowedExactly(const at::Tensor& values);

}  // namespace oxbow::io
