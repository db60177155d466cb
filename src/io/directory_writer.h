// SPDX-License-Identifier: Apache-2.0
// Writes a model as a diffusers directory (io/diffusers_directory.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "io/tensor_bytes.h"

namespace oxbow::io {

struct ComponentContent {
  std::map<std::string, std::string> files;    // File name -> content.
  std::map<std::string, TensorBytes> weights;  // Empty without weights.
};

// The content of a whole directory: the components that its pipeline requires, by folder name.
struct DirectoryContent {
  std::string pipeline;  // A class of PipelineTable; empty: the first.
  std::map<std::string, ComponentContent> components;  // No scheduler: a plain one with shift 1.
  std::map<std::string, std::string> metadata;         // Provenance, for the weights' headers.
};

// Writes a directory that diffusers' and transformers' from_pretrained load. model_index.json comes
// last, so that an interrupted write is not mistaken for a model. Requires all required components.
absl::Status WriteDirectory(const std::filesystem::path& directory,
                            const DirectoryContent& content);

}  // namespace oxbow::io
