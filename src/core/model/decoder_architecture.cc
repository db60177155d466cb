// SPDX-License-Identifier: Apache-2.0
#include "core/model/decoder_architecture.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace oxbow::model {

absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadDecoder(
    const std::string& config_json) {
  const auto json = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("autoencoder config: not a JSON object");
  const std::vector<DecoderRow>& table = DecoderTable();
  const auto written = json.find("_class_name");
  if (written == json.end()) return table.front().read(table.front().class_name, config_json);
  for (const DecoderRow& row : table) {
    if (*written == row.class_name) return row.read(row.class_name, config_json);
  }
  const std::string known = absl::StrJoin(
      table, ", ", [](std::string* out, const DecoderRow& row) { out->append(row.class_name); });
  return absl::InvalidArgumentError(
      absl::StrCat("unknown autoencoder (", known, " are supported): ", written->dump()));
}

}  // namespace oxbow::model
