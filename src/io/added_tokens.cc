// SPDX-License-Identifier: Apache-2.0
#include "io/added_tokens.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kAddedTokensBytesMax = 64 << 20;
constexpr int64_t kExtraIdsMax = 10'000;

// The file's object, or an empty one where there is no such file.
absl::StatusOr<Json> ReadTokensJson(const std::filesystem::path& path) {
  auto text = ReadFile(path, kAddedTokensBytesMax);
  if (absl::IsNotFound(text.status())) return Json::object();
  if (!text.ok()) return text.status();
  Json json = ParseJson(*text);
  if (json.is_object()) return json;
  return absl::DataLossError(absl::StrCat("not a JSON object: ", path.string()));
}

// A token is a string, or an object with the string in "content".
std::optional<std::string> TextOf(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_object() && json.contains("content") && json["content"].is_string()) {
    return json["content"].get<std::string>();
  }
  return std::nullopt;
}

bool IsNormalized(const Json& json) {
  return json.is_object() && json.contains("normalized") && json["normalized"].is_boolean() &&
         json["normalized"].get<bool>();
}

void ReadNamed(const Json& json, TokenizerSettings& settings) {
  for (auto& [key, text] : settings.named) {
    if (!json.contains(key)) continue;
    const std::optional<std::string> given = TextOf(json[key]);
    if (!given.has_value()) continue;
    text = *given;
    if (json[key].is_object()) settings.normalized[text] = IsNormalized(json[key]);
  }
}

absl::Status ReadListed(const Json& json, TokenizerSettings& settings) {
  for (const auto& [key, token] : json.items()) {
    int64_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    const std::optional<std::string> text = TextOf(token);
    if (end.ec != std::errc() || end.ptr != key.data() + key.size() || id < 0 || id > INT32_MAX ||
        !text.has_value() || text->empty()) {
      return absl::DataLossError(
          absl::StrCat("added_tokens_decoder: not an id with a token: ", key));
    }
    settings.listed.push_back({.text = *text, .id = id, .normalized = IsNormalized(token)});
    settings.normalized[*text] = IsNormalized(token);
  }
  return absl::OkStatus();
}

}  // namespace

AddedToken TokenizerSettings::Token(const std::string& text, int64_t id) const {
  const auto found = normalized.find(text);
  return {.text = text, .id = id, .normalized = found != normalized.end() && found->second};
}

absl::StatusOr<TokenizerSettings> ReadTokenizerSettings(const std::filesystem::path& directory,
                                                        std::map<std::string, std::string> named,
                                                        std::vector<AddedToken> listed) {
  TokenizerSettings settings;
  settings.named = std::move(named);
  const std::filesystem::path path = directory / "tokenizer_config.json";
  OXBOW_ASSIGN_OR_RETURN(const Json config, ReadTokensJson(path));
  ReadNamed(config, settings);
  const auto integer = [&](const char* key) -> std::optional<int64_t> {
    if (!config.contains(key) || !config[key].is_number_integer()) return std::nullopt;
    return config[key].get<int64_t>();
  };
  settings.model_max_length = integer("model_max_length");
  settings.extra_ids = integer("extra_ids");
  if (settings.extra_ids.value_or(0) < 0 || settings.extra_ids.value_or(0) > kExtraIdsMax) {
    return absl::DataLossError(
        absl::StrCat("extra_ids is no count: ", *settings.extra_ids, ": ", path.string()));
  }
  if (config.contains("added_tokens_decoder") && config["added_tokens_decoder"].is_object()) {
    const absl::Status status = ReadListed(config["added_tokens_decoder"], settings);
    if (!status.ok()) return Annotate(status, path.string());
    return settings;
  }
  for (const AddedToken& token : listed) settings.normalized[token.text] = token.normalized;
  settings.listed = std::move(listed);
  OXBOW_ASSIGN_OR_RETURN(const Json special, ReadTokensJson(directory / "special_tokens_map.json"));
  ReadNamed(special, settings);
  return settings;
}

std::vector<int64_t> TokenRow(std::vector<int64_t> ids, int64_t end, int64_t pad, int64_t length) {
  OXBOW_CHECK(length >= 1) << length;
  const auto size = static_cast<size_t>(length);
  if (ids.size() > size - 1) ids.resize(size - 1);
  ids.push_back(end);
  ids.resize(size, pad);
  return ids;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) {
  for (AddedToken& token : tokens) {
    if (!token.text.empty()) by_first_[token.text.front()].push_back(std::move(token));
  }
  for (auto& [first, list] : by_first_) {
    std::stable_sort(list.begin(), list.end(), [](const AddedToken& a, const AddedToken& b) {
      return a.text.size() > b.text.size();
    });
  }
}

std::vector<TextCut> AddedTokens::Cut(std::string_view text) const {
  std::vector<TextCut> cuts;
  size_t plain = 0;  // Start of the text since the last token.
  const auto end_plain = [&](size_t end) {
    if (end > plain) cuts.push_back({.text = text.substr(plain, end - plain), .id = std::nullopt});
  };
  for (size_t i = 0; i < text.size();) {
    const AddedToken* token = nullptr;
    if (const auto list = by_first_.find(text[i]); list != by_first_.end()) {
      for (const AddedToken& candidate : list->second) {
        if (!text.substr(i).starts_with(candidate.text)) continue;
        token = &candidate;
        break;
      }
    }
    if (token == nullptr) {
      ++i;
      continue;
    }
    end_plain(i);
    cuts.push_back({.text = text.substr(i, token->text.size()), .id = token->id});
    plain = i += token->text.size();
  }
  end_plain(text.size());
  return cuts;
}

}  // namespace oxbow::io
