// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include "base/file.h"
#include "base/status_macros.h"

namespace oxbow {

nlohmann::json ParseJson(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

absl::StatusOr<nlohmann::json> ReadJsonObject(const std::filesystem::path& path,
                                              uint64_t bytes_max) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, bytes_max));
  nlohmann::json json = ParseJson(text);
  if (json.is_object()) return json;
  return absl::DataLossError("not a JSON object: " + path.string());
}

bool IsNestedBeyond(std::string_view text, int depth_max) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (depth > depth_max) return true;
  }
  return false;
}

std::string TextIn(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const nlohmann::json& MemberOf(const nlohmann::json& object, const char* key) {
  static const auto& null = *new nlohmann::json;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? null : *found;
}

std::string JsonText(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace oxbow
