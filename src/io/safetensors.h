// Whole safetensors files: named tensors with a JSON header (safetensors_header.h has the layout).
//
// For files too large to hold twice, WeightFiles reads tensor by tensor and StreamSafetensors
// writes so.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/safetensors_header.h"
#include "io/tensor_bytes.h"

namespace oxbow::io {

struct Safetensors {
  std::map<std::string, TensorBytes> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses a whole file. kDataLoss, naming `name` and the tensor, if it is truncated or corrupt;
// kFailedPrecondition if a tensor has a dtype that DType has not.
absl::StatusOr<Safetensors> ParseSafetensors(std::string_view bytes, const std::string& name);

// Reads a file through a memory map. As ParseSafetensors, and kNotFound if there is no such file.
absl::StatusOr<Safetensors> ReadSafetensors(const std::filesystem::path& path);

// What a file holds without reading the tensors; refuses the same files as ReadSafetensors.
absl::StatusOr<std::map<std::string, TensorHeader>> ReadSafetensorsHeader(
    const std::filesystem::path& path);

// The bytes of a file, tensors by descending width and then name (so that each is aligned),
// metadata "format": "pt" added if absent (diffusers and transformers refuse files without it).
// Equal content gives equal bytes. Requires valid tensors.
std::string SerializeSafetensors(const Safetensors& content);

// Replaces `path` atomically with SerializeSafetensors(content).
absl::Status WriteSafetensors(const std::filesystem::path& path, const Safetensors& content);

// The bytes of such a file, in order, given to `write` piece by piece: for files of any size.
// `bytes_of` is asked for one tensor after the other, and gives as many bytes as its header says;
// they stay valid until it is asked again. The first error of either ends it and is returned.
absl::Status StreamSafetensors(
    const std::map<std::string, TensorHeader>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::function<absl::StatusOr<std::string_view>(const std::string& name)>& bytes_of,
    const std::function<absl::Status(std::string_view piece)>& write);

// The same file without holding it: `bytes_of` is asked for one tensor after the other, and must
// give as many bytes as its header says. Its errors are passed on, `path` is then untouched.
absl::Status WriteSafetensorsPiecewise(
    const std::filesystem::path& path, const std::map<std::string, TensorHeader>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::function<absl::StatusOr<std::string>(const std::string& name)>& bytes_of);

}  // namespace oxbow::io
