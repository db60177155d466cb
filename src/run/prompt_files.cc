// SPDX-License-Identifier: Apache-2.0
#include "run/prompt_files.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "io/hub_id.h"
#include "io/text_lines.h"
#include "run/prompt.h"

namespace oxbow::run {
namespace {

using nlohmann::json;

constexpr char kPromptKey[] = "prompt";
constexpr char kNegativeKey[] = "negative_prompt";
constexpr int kDepthMax = 64;  // Nesting of JSON: writing it back recurses.

// Keys by which Flow-Factory gives a model more than a text.
constexpr const char* kConditionKeys[] = {"image", "images", "video",     "videos",
                                          "audio", "audios", "references"};

absl::StatusOr<json> ParseObject(const std::string& line) {
  bool deep = false;
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    deep = deep || depth > kDepthMax;
    return !deep;
  };
  try {
    json object = json::parse(line, shallow);
    if (deep) {
      return absl::InvalidArgumentError(absl::StrCat("nested deeper than ", kDepthMax));
    }
    if (!object.is_object()) {
      return absl::InvalidArgumentError(
          "not a JSON object; a .jsonl file has one {\"prompt\": \"...\"} per line");
    }
    return object;
  } catch (const json::exception& error) {
    const auto* const syntax = dynamic_cast<const json::parse_error*>(&error);
    return absl::InvalidArgumentError(
        absl::StrCat("not JSON", syntax == nullptr ? "" : absl::StrCat(", at byte ", syntax->byte),
                     "; a .jsonl file has one {\"prompt\": \"...\"} per line"));
  }
}

bool IsEmpty(const json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || value.empty();
}

std::string KeysOf(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    keys.push_back(absl::Utf8SafeCHexEscape(key.substr(0, 40)));
  }
  constexpr size_t kShown = 8;
  const bool more = keys.size() > kShown;
  keys.resize(std::min(keys.size(), kShown));
  return absl::StrCat(absl::StrJoin(keys, ", "), more ? ", ..." : "");
}

absl::StatusOr<v1::Prompt> PromptFromJson(const std::string& line) {
  OXBOW_ASSIGN_OR_RETURN(const json object, ParseObject(line));
  const auto text = object.find(kPromptKey);
  if (text == object.end() || !text->is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no text under \"prompt\"; the line has: ", KeysOf(object)));
  }
  const std::string& prompt = text->get_ref<const std::string&>();
  if (io::StripSpace(prompt).empty()) {
    return absl::InvalidArgumentError("\"prompt\" is empty; remove the line");
  }
  if (prompt.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("\"prompt\" holds a zero character; remove it");
  }
  for (const char* key : kConditionKeys) {
    if (const auto condition = object.find(key); condition != object.end() && !IsEmpty(*condition))
      return absl::InvalidArgumentError(
          absl::StrCat("\"", key,
                       "\": models here see a text alone, and would be trained without it; "
                       "remove the key or the line"));
  }
  return MakePrompt(prompt, object.size() == 1 ? "" : JsonText(object));
}

absl::StatusOr<v1::Prompt> PromptFromLine(const std::string& line, bool is_json) {
  return is_json ? PromptFromJson(line) : MakePrompt(line, "");
}

}  // namespace

absl::StatusOr<std::filesystem::path> PromptFile(const std::filesystem::path& path,
                                                 PromptSplit split) {
  std::error_code error;
  if (io::IsDatasetId(path.string())) {
    return absl::NotFoundError(
        absl::StrCat("the Hub's cache does not have ", path.string(), io::HubHint(path.string())));
  }
  if (!std::filesystem::is_directory(path, error)) return path;
  const std::string name = split == PromptSplit::kTrain ? "train" : "test";
  const std::string names[] = {name + ".jsonl", name + "_metadata.jsonl", name + ".txt"};
  for (const std::string& candidate : names) {
    if (std::filesystem::exists(path / candidate, error)) return path / candidate;
  }
  return absl::NotFoundError(
      absl::StrCat("the directory has none of ", absl::StrJoin(names, ", "), ": ", path.string()));
}

absl::StatusOr<std::vector<v1::Prompt>> ReadPrompts(const std::filesystem::path& path,
                                                    PromptSplit split, const PromptLimits& limits) {
  OXBOW_ASSIGN_OR_RETURN(const std::filesystem::path file, PromptFile(path, split));
  OXBOW_ASSIGN_OR_RETURN(io::TextLines lines, io::TextLines::Open(file, limits.line_bytes_max));
  const bool is_json = file.extension() == ".jsonl";
  std::vector<v1::Prompt> prompts;
  absl::flat_hash_set<uint64_t> seen;
  uint64_t bytes = 0;
  for (std::string line;;) {
    OXBOW_ASSIGN_OR_RETURN(const bool any, lines.Next(line));
    if (!any) break;
    line = std::string(io::StripSpace(line));
    if (line.empty()) continue;
    absl::StatusOr<v1::Prompt> prompt = PromptFromLine(line, is_json);
    if (!prompt.ok()) return Annotate(prompt.status(), lines.place());
    if (!seen.insert(prompt->id()).second && !limits.keep_repeats) continue;
    bytes += prompt->text().size() + prompt->metadata_json().size();
    if (bytes > limits.bytes_max) {
      return absl::InvalidArgumentError(
          absl::StrCat(lines.place(), ": the prompts so far take more than ", limits.bytes_max,
                       " bytes of memory; cut the file"));
    }
    prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file.string(), ": holds no prompt"));
  }
  return prompts;
}

std::string DigestOfPrompts(const std::vector<v1::Prompt>& prompts) {
  Sha256Stream stream;
  for (const v1::Prompt& prompt : prompts) stream.Update(absl::StrCat(prompt.id(), "\n"));
  return stream.Hex();
}

size_t CountNegativePrompts(const std::vector<v1::Prompt>& prompts) {
  return static_cast<size_t>(
      std::count_if(prompts.begin(), prompts.end(), [](const v1::Prompt& prompt) {
        if (prompt.metadata_json().find(kNegativeKey) == std::string::npos) return false;
        const json object = ParseJson(prompt.metadata_json());
        const auto negative = object.find(kNegativeKey);
        return negative != object.end() && !IsEmpty(*negative);
      }));
}

}  // namespace oxbow::run
