// SPDX-License-Identifier: Apache-2.0
// Safetensors files: named tensors with a JSON header that says where their bytes lie.
//
//   u64 LE  N            header length, at most 100,000,000
//   N bytes              {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//                         "__metadata__": {"format": "pt", ...}}, space-padded to a multiple of 8
//   the rest             tensor bytes, little-endian, row-major, packed without holes or overlap
//
// https://github.com/huggingface/safetensors. Parsing trusts nothing: sizes are checked against the
// bytes that are really there before anything is allocated.
//
// For files too large to hold twice, WeightFiles reads tensor by tensor and
// StreamSafetensors writes so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
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

// A whole file.
struct Safetensors {
  std::map<std::string, TensorBytes> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses a whole file. kDataLoss, naming `name` and the tensor, if it is truncated or corrupt;
// kFailedPrecondition if a tensor has a dtype that DType has not.
absl::StatusOr<Safetensors> ParseSafetensors(std::string_view bytes, const std::string& name);

// Reads a file through a memory map. As ParseSafetensors, and kNotFound if there is no such file.
absl::StatusOr<Safetensors> ReadSafetensors(const std::filesystem::path& path);

// The bytes of a file, tensors by descending width and then name (so that each is aligned),
// metadata "format": "pt" added if absent (diffusers and transformers refuse files without it).
// Equal content gives equal bytes. Requires valid tensors.
std::string SerializeSafetensors(const Safetensors& content);

// Replaces `path` atomically with SerializeSafetensors(content).
absl::Status WriteSafetensors(const std::filesystem::path& path, const Safetensors& content);

using WriteBytes = std::function<absl::Status(std::string_view piece)>;

// The bytes of such a file, in order, given to `write` piece by piece: for files of any size.
// `write_bytes_of` is asked for one tensor after the other, and gives as many bytes as its header
// says to its own `write`, piece by piece. The first error of either ends it and is returned.
absl::Status StreamSafetensors(
    const std::map<std::string, TensorHeader>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::function<absl::Status(const std::string& name, const WriteBytes& write)>&
        write_bytes_of,
    const WriteBytes& write);

// The same file without holding it: `bytes_of` is asked for one tensor after the other, and must
// give as many bytes as its header says. Its errors are passed on, `path` is then untouched.
absl::Status WriteSafetensorsPiecewise(
    const std::filesystem::path& path, const std::map<std::string, TensorHeader>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::function<absl::StatusOr<std::string>(const std::string& name)>& bytes_of);

}  // namespace oxbow::io
