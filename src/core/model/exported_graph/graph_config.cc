// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/graph_config.h"

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::model::exported {
namespace {

using Json = nlohmann::json;

absl::Status Differs(const std::string& key, const Json& config, const Json& graph) {
  constexpr auto kReplace = Json::error_handler_t::replace;
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is ", config.dump(-1, ' ', false, kReplace).substr(0, 60),
                   ", and the graph is for ", graph.dump(-1, ' ', false, kReplace).substr(0, 60)));
}

// Objects within are compared key by key: a config has keys of others, too. A default of a key
// within has the path of it.
absl::Status CheckObject(const std::string& path, const Json& exported, const Json& config,
                         const Json& defaults) {
  for (auto value = exported.begin(); value != exported.end(); ++value) {
    if (value.key().starts_with("_")) continue;
    const std::string key = absl::StrCat(path, value.key());
    const Json& here = config.contains(value.key()) ? config[value.key()]
                       : defaults.contains(key)     ? defaults[key]
                                                    : value.value();
    if (here.is_object() && value->is_object()) {
      OXBOW_RETURN_IF_ERROR(CheckObject(key + ".", *value, here, defaults));
    } else if (here != value.value()) {
      return Differs(key, here, value.value());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckConfig(const Graph& graph, const std::string& config_json) {
  const Json config = ParseJson(config_json);
  if (!config.is_object()) return absl::InvalidArgumentError("config.json is not a JSON object");
  return CheckObject("", Json::parse(graph.config_json), config, Json::parse(graph.defaults_json));
}

}  // namespace oxbow::model::exported
