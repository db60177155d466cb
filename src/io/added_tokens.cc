// SPDX-License-Identifier: Apache-2.0
#include "io/added_tokens.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kAddedTokensBytesMax = 64 << 20;
constexpr int64_t kExtraIdsMax = 10'000;

// The file's object, or an empty one where there is no such file.
absl::StatusOr<Json> ReadTokensJson(const std::filesystem::path& path) {
  auto json = ReadJsonObject(path, kAddedTokensBytesMax);
  if (absl::IsNotFound(json.status())) return Json::object();
  return json;
}

// A token is a string, or an object with the string in "content".
std::optional<std::string> TextOf(const Json& json) {
  const Json& text = json.is_object() ? MemberOf(json, "content") : json;
  return text.is_string() ? std::optional(text.get<std::string>()) : std::nullopt;
}

bool IsNormalized(const Json& json) { return MemberOf(json, "normalized") == true; }

void ReadNamed(const Json& json, TokenizerSettings& settings) {
  for (auto& [key, text] : settings.named) {
    const Json& token = MemberOf(json, key.c_str());
    const std::optional<std::string> given = TextOf(token);
    if (!given.has_value()) continue;
    text = *given;
    if (token.is_object()) settings.normalized[text] = IsNormalized(token);
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
    const Json& value = MemberOf(config, key);
    return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
  };
  settings.model_max_length = integer("model_max_length");
  settings.extra_ids = integer("extra_ids");
  if (settings.extra_ids.value_or(0) < 0 || settings.extra_ids.value_or(0) > kExtraIdsMax) {
    return absl::DataLossError(
        absl::StrCat("extra_ids is no count: ", *settings.extra_ids, ": ", path.string()));
  }
  if (const Json& decoder = MemberOf(config, "added_tokens_decoder"); decoder.is_object()) {
    const absl::Status status = ReadListed(decoder, settings);
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

void AddedTokens::Append(std::string_view text, std::vector<int64_t>& ids,
                         const std::function<void(std::string_view piece)>& plain) const {
  size_t begin = 0;  // Of the text since the last token.
  const auto end_plain = [&](size_t end) {
    if (end > begin) plain(text.substr(begin, end - begin));
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
    ids.push_back(token->id);
    begin = i += token->text.size();
  }
  end_plain(text.size());
}

}  // namespace oxbow::io
