// The safetensors file format: named tensors with a JSON header.
//
//   u64 LE  N            header length, at most 100,000,000
//   N bytes              {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//                         "__metadata__": {"format": "pt", ...}}, space-padded to a multiple of 8
//   the rest             tensor bytes, little-endian, row-major, packed without holes or overlap
//
// https://github.com/huggingface/safetensors. Reading trusts nothing: sizes are checked against the
// bytes that are really there before anything is allocated.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/tensor_bytes.h"

namespace oxbow::io {

struct Safetensors {
  std::map<std::string, TensorBytes> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses a whole file. kDataLoss, naming `name` and the tensor, if it is truncated or corrupt;
// kInvalidArgument if a tensor has a dtype that DType lacks.
absl::StatusOr<Safetensors> ParseSafetensors(std::string_view bytes, const std::string& name);

// Reads a file through a memory map. As ParseSafetensors, and kNotFound if there is no such file.
absl::StatusOr<Safetensors> ReadSafetensors(const std::filesystem::path& path);

struct TensorHeader {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// What a file holds without reading the tensors; refuses the same files as ReadSafetensors.
absl::StatusOr<std::map<std::string, TensorHeader>> ReadSafetensorsHeader(
    const std::filesystem::path& path);

// The bytes of a file, tensors by descending width and then name (so that each is aligned),
// metadata "format": "pt" added if absent (diffusers and transformers refuse files without it).
// Equal content gives equal bytes. Requires valid tensors.
std::string SerializeSafetensors(const Safetensors& content);

// Replaces `path` atomically with SerializeSafetensors(content).
absl::Status WriteSafetensors(const std::filesystem::path& path, const Safetensors& content);

}  // namespace oxbow::io
