// SPDX-License-Identifier: Apache-2.0
// The exported graph of a network: beside its config.json, or among those that come with oxbow.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/graph.h"
#include "io/diffusers_directory.h"

namespace oxbow::io {

struct NetworkGraph {
  model::exported::Graph graph;
  std::string json;  // Its file, unpacked.

  // A whole number of its config. Dies if there is none of that key.
  int64_t Size(const char* key) const;
};

// A directory's own graph must fit; among the shipped ones the config chooses. No config: that of
// all defaults. kFailedPrecondition where there is none for the config, with the command that makes
// one; kDataLoss for a damaged file. `velocity`: of a transformer.
absl::StatusOr<NetworkGraph> FindNetworkGraph(const DiffusersComponent& network,
                                              bool velocity = false);

}  // namespace oxbow::io
