// SPDX-License-Identifier: Apache-2.0
#include "core/model/decoder_architecture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/status_macros.h"

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

bool IsNativeDecoder(const std::string& class_name) {
  return std::ranges::any_of(DecoderTable(), [&](const DecoderRow& row) {
    return !row.class_name.empty() && row.class_name == class_name;
  });
}

absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadDecoder(
    const std::string& config_json, const std::string& graph_json) {
  OXBOW_ASSIGN_OR_RETURN(const std::string class_name, DecoderClassOf(config_json));
  for (const DecoderRow& row : DecoderTable()) {
    if (!row.class_name.empty() && row.class_name != class_name) continue;
    return row.read(
        {.class_name = class_name, .config_json = config_json, .graph_json = graph_json});
  }
  const std::string known =
      absl::StrJoin(DecoderTable(), ", ",
                    [](std::string* out, const DecoderRow& row) { out->append(row.class_name); });
  return absl::InvalidArgumentError(
      absl::StrCat("unknown autoencoder (", known, " are supported): ", class_name));
}

}  // namespace oxbow::model
