// SPDX-License-Identifier: Apache-2.0
#include "core/model/decoder_architecture.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "core/model/exported_graph/exported_decoder.h"

namespace oxbow::model {

absl::StatusOr<std::string> DecoderClassOf(const std::string& config_json) {
  const auto json = ParseJson(config_json);
  if (!json.is_object()) return absl::InvalidArgumentError("autoencoder config: not a JSON object");
  const auto written = json.find("_class_name");
  if (written == json.end()) return "AutoencoderKL";
  if (written->is_string() && !written->get<std::string>().empty()) return *written;
  return absl::InvalidArgumentError(
      absl::StrCat("autoencoder config: _class_name is no name: ", written->dump()));
}

absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadDecoder(
    const std::string& config_json, const std::string& graph_json) {
  OXBOW_ASSIGN_OR_RETURN(std::string class_name, DecoderClassOf(config_json));
  return exported::ReadExportedDecoder(
      {.class_name = std::move(class_name), .config_json = config_json, .graph_json = graph_json});
}

}  // namespace oxbow::model
