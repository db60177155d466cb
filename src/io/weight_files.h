// SPDX-License-Identifier: Apache-2.0
// The weights of one component of a model: a safetensors file, or several with an index.
//
//   BASE.safetensors.index.json        {"weight_map": {"tensor":
//   "BASE-00001-of-00003.safetensors"}} BASE.safetensors BASE.safetensors.index.fp16.json   the
//   same two in 16 bits BASE.fp16.safetensors
//
// The first of these that is there is opened; BASE is "diffusion_pytorch_model" in diffusers'
// folders and "model" in transformers'. Files are mapped: opening reads headers, and a tensor's
// bytes are read from disk when they are looked at.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "io/tensor_bytes.h"

namespace oxbow::io {

class WeightFiles {
 public:
  // kNotFound if there is none of these files, or a shard that the index names is missing;
  // kDataLoss if one is truncated or corrupt, a tensor is in two shards, or not in the shard that
  // the index says; kFailedPrecondition for a dtype that DType has not. All name the file.
  static absl::StatusOr<WeightFiles> Open(const std::filesystem::path& directory,
                                          const std::string& base);

  // A single file.
  static absl::StatusOr<WeightFiles> OpenFile(const std::filesystem::path& file);

  const std::map<std::string, TensorHeader>& headers() const { return headers_; }
  bool Has(const std::string& name) const { return headers_.contains(name); }

  // `__metadata__` of all files.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // A tensor's bytes in place, unaligned, while this lives. Dies if there is no such tensor.
  std::string_view BytesOf(const std::string& name) const;

  // Takes a tensor's bytes out of memory until they are looked at again. Dies if there is no such
  // tensor.
  void Release(const std::string& name) const;

  // The file that holds a tensor, and where in it its bytes begin. Dies if there is no such tensor.
  std::string FileOf(const std::string& name) const;
  uint64_t OffsetOf(const std::string& name) const;

 private:
  struct Place {
    size_t file = 0;
    std::string_view bytes;
  };

  absl::Status AddFile(const std::filesystem::path& path);
  const Place& PlaceOf(const std::string& name) const;

  std::vector<MappedFile> files_;
  std::vector<std::string> paths_;  // Paths of files_.
  std::map<std::string, TensorHeader> headers_;
  std::map<std::string, Place> places_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace oxbow::io
