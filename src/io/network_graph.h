// SPDX-License-Identifier: Apache-2.0
// The exported graph of a network: beside its config.json, or among those that come with oxbow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/exported_graph/graph.h"
#include "io/diffusers_directory.h"
#include "io/graph_files.h"

namespace oxbow::io {

struct NetworkGraph {
  model::exported::Graph graph;
  std::string json;  // Its file, unpacked.

  // A whole number of its config. Dies if there is none of that key.
  int64_t Size(const char* key) const;
};

// The network's own graph, which must fit, or the one that comes with oxbow for its config. No
// config: that of all defaults. Errors of FirstGraph; kDataLoss for a damaged file. `velocity`: of
// a transformer.
absl::StatusOr<NetworkGraph> FindNetworkGraph(const DiffusersComponent& network,
                                              bool velocity = false);

// The error of a part of a model that no graph fits: kFailedPrecondition, ends with the command
// that makes one. `others`: why those that come with oxbow do not fit.
absl::Status NoGraphOf(const DiffusersComponent& part, const std::string& others);
// The class and the absolute directory of the part, from its error, however it was passed on; none:
// another error.
std::optional<DiffusersComponent> WithoutGraph(const absl::Status& error);

// The result of `read` for a file's JSON: for the part's own graph, which must fit, or for the
// first that fits of those that come with oxbow, sorted. Errors name the file; NoGraphOf if none
// fits.
template <typename Read>
auto FirstGraph(const DiffusersComponent& part, const Read& read) -> decltype(read("")) {
  const GraphFiles files = FindGraphFiles(part);
  std::string others;
  for (const auto& path : files.own.empty() ? files.shipped : std::vector{files.own}) {
    OXBOW_ASSIGN_OR_RETURN(const std::string json, ReadGraphFile(path));
    auto made = read(json);
    if (made.ok()) return made;
    const absl::Status error = DataError(made.status(), path);
    if (!files.own.empty() || !absl::IsFailedPrecondition(error)) return error;
    absl::StrAppend(&others, others.empty() ? "" : "; ", error.message());
  }
  return NoGraphOf(part, others);
}

}  // namespace oxbow::io
