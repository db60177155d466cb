// SPDX-License-Identifier: Apache-2.0
#include "io/network_graph.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "core/model/exported_graph/exported_network.h"
#include "core/model/exported_graph/graph_config.h"
#include "io/graph_files.h"

namespace oxbow::io {

int64_t NetworkGraph::Size(const char* key) const {
  const auto config = ParseJson(graph.config_json);
  const auto& size = MemberOf(config, key);
  OXBOW_CHECK(size.is_number_integer()) << graph.class_name << " has no " << key;
  return size.get<int64_t>();
}

absl::StatusOr<NetworkGraph> FindNetworkGraph(const DiffusersComponent& network, bool velocity) {
  namespace fs = std::filesystem;
  const auto read = [&](const fs::path& path) -> absl::StatusOr<NetworkGraph> {
    OXBOW_ASSIGN_OR_RETURN(std::string json, ReadGraphFile(path));
    auto graph =
        model::exported::ParseNetwork(json, network.class_name, network.config_json, velocity);
    if (!graph.ok()) return DataError(graph.status(), path);
    return NetworkGraph{*std::move(graph), std::move(json)};
  };
  const GraphFiles files = FindGraphFiles(network);
  if (!files.own.empty()) return read(files.own);
  std::string others;  // The shipped ones, and why they do not fit.
  for (const fs::path& path : files.shipped) {
    absl::StatusOr<NetworkGraph> graph = read(path);
    if (graph.ok() || !absl::IsFailedPrecondition(graph.status())) return graph;
    absl::StrAppend(&others, others.empty() ? " (" : "; ", graph.status().message());
  }
  return absl::FailedPreconditionError(
      absl::StrCat(network.directory.string(), ": no graph of this ", network.class_name, others,
                   others.empty() ? "; " : "); ",
                   model::exported::ExportCommand(network.class_name,
                                                  fs::absolute(network.directory).string())));
}

}  // namespace oxbow::io
