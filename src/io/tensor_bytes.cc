// SPDX-License-Identifier: Apache-2.0
#include "io/tensor_bytes.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

struct DTypeRow {
  DType dtype;
  uint64_t width;
  const char* name;
};

constexpr std::array<DTypeRow, 9> kDTypes = {{{DType::kF32, 4, "F32"},
                                              {DType::kF16, 2, "F16"},
                                              {DType::kBF16, 2, "BF16"},
                                              {DType::kF64, 8, "F64"},
                                              {DType::kI64, 8, "I64"},
                                              {DType::kI32, 4, "I32"},
                                              {DType::kU8, 1, "U8"},
                                              {DType::kBool, 1, "BOOL"},
                                              {DType::kI8, 1, "I8"}}};

const DTypeRow& RowOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  OXBOW_CHECK(index < kDTypes.size() && kDTypes[index].dtype == dtype) << "dtype " << index;
  return kDTypes[index];
}

}  // namespace

uint64_t WidthOf(DType dtype) { return RowOf(dtype).width; }

std::string NameOf(DType dtype) { return RowOf(dtype).name; }

absl::StatusOr<DType> DTypeNamed(const std::string& name) {
  for (const DTypeRow& row : kDTypes) {
    if (name == row.name) return row.dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unsupported dtype (F32, F16, BF16, F64, I64, I32, U8, BOOL are): ", name));
}

absl::StatusOr<uint64_t> ByteSize(DType dtype, const std::vector<int64_t>& shape,
                                  uint64_t bytes_max) {
  // A zero dimension makes the tensor empty whatever the others say, so look for it first.
  bool empty = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("negative dimension in shape [", absl::StrJoin(shape, ","), "]"));
    }
    empty = empty || dimension == 0;
  }
  if (empty) return 0;
  uint64_t bytes = WidthOf(dtype);
  for (const int64_t dimension : shape) {
    if (static_cast<uint64_t>(dimension) > bytes_max / bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor is larger than ", bytes_max, " bytes: shape [", absl::StrJoin(shape, ","), "]"));
    }
    bytes *= static_cast<uint64_t>(dimension);
  }
  return bytes;
}

absl::Status Validate(const TensorBytes& tensor) {
  OXBOW_ASSIGN_OR_RETURN(const uint64_t declared, ByteSize(tensor.dtype, tensor.shape));
  if (tensor.data.size() != declared) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor bytes do not fit shape [", absl::StrJoin(tensor.shape, ","), "] ",
                     NameOf(tensor.dtype), ": declared ", declared, ", got ", tensor.data.size()));
  }
  return absl::OkStatus();
}

}  // namespace oxbow::io
