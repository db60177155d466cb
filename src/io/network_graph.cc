// SPDX-License-Identifier: Apache-2.0
#include "io/network_graph.h"

#include <filesystem>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/json.h"
#include "core/model/exported_graph/exported_network.h"

namespace oxbow::io {
namespace {

constexpr char kWithoutGraph[] = "oxbow/without_graph";  // A payload: class, new line, directory.

}  // namespace

int64_t NetworkGraph::Size(const char* key) const {
  const auto config = ParseJson(graph.config_json);
  const auto& size = MemberOf(config, key);
  OXBOW_CHECK(size.is_number_integer()) << graph.class_name << " has no " << key;
  return size.get<int64_t>();
}

absl::StatusOr<NetworkGraph> FindNetworkGraph(const DiffusersComponent& network, bool velocity) {
  return FirstGraph(network, [&](const std::string& json) -> absl::StatusOr<NetworkGraph> {
    OXBOW_ASSIGN_OR_RETURN(
        auto graph,
        model::exported::ParseNetwork(json, network.class_name, network.config_json, velocity));
    return NetworkGraph{std::move(graph), json};
  });
}

absl::Status NoGraphOf(const DiffusersComponent& part, const std::string& others) {
  std::error_code ignored;
  const std::string directory = std::filesystem::absolute(part.directory, ignored).string();
  absl::Status status = absl::FailedPreconditionError(absl::StrCat(
      "no graph of this ", part.class_name, others.empty() ? "" : absl::StrCat(" (", others, ")"),
      "; make it once, in oxbow's source tree: `pip install -r "
      "tools/export_model/requirements.txt && cd tools && python3 -m export_model export ",
      part.class_name, " --config ", directory, "/config.json --out ", directory, "`"));
  status.SetPayload(kWithoutGraph, absl::Cord(absl::StrCat(part.class_name, "\n", directory)));
  return status;
}

std::optional<DiffusersComponent> WithoutGraph(const absl::Status& error) {
  const auto said = error.GetPayload(kWithoutGraph);
  if (!said.has_value()) return std::nullopt;
  const std::pair<std::string, std::string> part =
      absl::StrSplit(std::string(*said), absl::MaxSplits('\n', 1));
  return DiffusersComponent{.class_name = part.first, .directory = part.second};
}

}  // namespace oxbow::io
