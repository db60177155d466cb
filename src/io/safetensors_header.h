// The header of a safetensors file: which tensors there are, and where their bytes lie.
//
//   u64 LE  N            header length, at most 100,000,000
//   N bytes              {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//                         "__metadata__": {"format": "pt", ...}}, space-padded to a multiple of 8
//   the rest             tensor bytes, little-endian, row-major, packed without holes or overlap
//
// https://github.com/huggingface/safetensors. Parsing trusts nothing: sizes are checked against the
// bytes that are really there before anything is allocated.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "io/tensor_bytes.h"

namespace oxbow::io {

struct TensorHeader {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

struct SafetensorsHeader {
  struct Entry {
    TensorHeader tensor;
    uint64_t begin = 0;  // In the file, not in its data section.
    uint64_t end = 0;
  };
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> metadata;
};

// Parses the header of a whole file. The entries lie inside `file` and fit their shapes. kDataLoss
// names the tensor if the file is truncated or corrupt; kFailedPrecondition if a tensor has a dtype
// that DType does not have.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view file);

}  // namespace oxbow::io
