// SPDX-License-Identifier: Apache-2.0
// A reward's network from a directory:
//
//   DIRECTORY/model.safetensors   its weights (io/weight_files.h)
//   DIRECTORY/config.json         where it is not the published one
//   DIRECTORY/graph.json(.gz)     its exported graph; else one of models/graphs, which oxbow ships
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/exported_network.h"
#include "io/weight_files.h"

namespace oxbow::rewards {

// "NAME CHECKSUM", a line a tensor: the part of an identity that is weights.
std::string WeightLines(const io::WeightFiles& files);

struct OpenedNetwork {
  std::unique_ptr<model::exported::ExportedNetwork> network;
  std::string identity;  // A hash of graph, weights and type.
};

// `device` as model.device, empty: cpu; `dtype` f32, bf16 or f16, empty: f32. kInvalidArgument
// names the one that is wrong.
absl::StatusOr<model::exported::NetworkOptions> OptionsNamed(const std::string& device,
                                                             const std::string& dtype);

// `class_name` of the graph. kNotFound, kDataLoss or kFailedPrecondition, naming the file; where
// there is no graph for the config, the command that makes one.
absl::StatusOr<OpenedNetwork> OpenNetwork(const std::filesystem::path& directory,
                                          const std::string& class_name,
                                          const model::exported::NetworkOptions& options);

}  // namespace oxbow::rewards
