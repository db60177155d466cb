// Tensors of weight files, straight from the mapped file into memory of their own.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "io/tensor_bytes.h"
#include "io/weight_files.h"

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::io {

struct TensorLoading {
  // Floating-point tensors are converted to this; integers and bools stay what they are.
  std::optional<DType> floats_as = DType::kF32;
  // Tensors to read, by name; all where empty. The others' bytes are never touched.
  std::function<bool(const std::string& name)> wanted;
};

// kDataLoss names a tensor that holds NaN or infinity, kFailedPrecondition one whose values do not
// fit the smaller type asked for.
absl::StatusOr<std::map<std::string, at::Tensor>> LoadTensors(const WeightFiles& files,
                                                              const TensorLoading& loading = {});

}  // namespace oxbow::io
