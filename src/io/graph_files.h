// SPDX-License-Identifier: Apache-2.0
// Where exported graphs of transformers and decoders lie: files of JSON, or of JSON packed with
// gzip (docs/formats.md).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/diffusers_directory.h"

namespace oxbow::io {

// JSON of a file, unpacked if need be. kNotFound; kDataLoss for a damaged one, kFailedPrecondition
// for one of more than 64 MiB unpacked; all name the file.
absl::StatusOr<std::string> ReadGraphFile(const std::filesystem::path& path);

struct GraphFiles {
  std::filesystem::path own;                   // In the transformer's directory; empty: none.
  std::vector<std::filesystem::path> shipped;  // Graphs of the transformer's class, sorted.
};

// A directory's own graph is transformer/graph.json or graph.json.gz. Shipped ones are
// {class}-{name}.json.gz, beside the installed program (share/oxbow/graphs) or in the source tree
// (models/graphs).
GraphFiles FindGraphFiles(const DiffusersComponent& transformer);

}  // namespace oxbow::io
