#include "core/model/exported_graph/graph_config.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace oxbow::model::exported {
namespace {

using Json = nlohmann::json;

absl::Status Differs(const std::string& key, const Json& config, const Json& graph) {
  constexpr auto kReplace = Json::error_handler_t::replace;
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is ", config.dump(-1, ' ', false, kReplace).substr(0, 60),
                   ", and the graph is for ", graph.dump(-1, ' ', false, kReplace).substr(0, 60)));
}

}  // namespace

absl::Status CheckConfig(const Graph& graph, const std::string& config_json) {
  const Json config = Json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError("config.json is not a JSON object");
  const Json exported = Json::parse(graph.config_json), defaults = Json::parse(graph.defaults_json);
  for (auto value = exported.begin(); value != exported.end(); ++value) {
    if (value.key().starts_with("_")) continue;
    const Json& here = config.contains(value.key())     ? config[value.key()]
                       : defaults.contains(value.key()) ? defaults[value.key()]
                                                        : value.value();
    if (here != value.value()) return Differs(value.key(), here, value.value());
  }
  return absl::OkStatus();
}

}  // namespace oxbow::model::exported
