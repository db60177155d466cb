// SPDX-License-Identifier: Apache-2.0
// A tensor as typed bytes, without torch: what travels, what is stored, what is hashed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::io {

enum class DType { kF32, kF16, kBF16, kF64, kI64, kI32, kU8, kBool, kI8 };

uint64_t WidthOf(DType dtype);    // Bytes per element.
std::string NameOf(DType dtype);  // As safetensors spells it: "F32".
absl::StatusOr<DType> DTypeNamed(const std::string& name);

// Little-endian, contiguous, row-major.
struct TensorBytes {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string data;
};

// product(shape) * width. kInvalidArgument for a negative dimension or a product over `bytes_max`:
// check before allocating for untrusted shapes.
absl::StatusOr<uint64_t> ByteSize(DType dtype, const std::vector<int64_t>& shape,
                                  uint64_t bytes_max = uint64_t{1} << 40);

// OK iff data.size() equals the declared size.
absl::Status Validate(const TensorBytes& tensor);

}  // namespace oxbow::io
