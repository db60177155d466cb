// SPDX-License-Identifier: Apache-2.0
#include "io/hub_id.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace oxbow::io {
namespace {

bool IsPlain(const std::string& word) {
  return std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-_./@", c);
  });
}

// As a shell takes it; plain words need no quotes.
std::string Quoted(const std::string& word) {
  if (IsPlain(word)) return word;
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

constexpr absl::string_view kDatasets = "hf://datasets/";

std::optional<HubId> ParseDatasetId(const std::string& path) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::StripPrefix(path, kDatasets), absl::MaxSplits('/', 2));
  if (parts.size() < 2) return std::nullopt;
  std::optional<HubId> id = ParseHubId(absl::StrCat(parts[0], "/", parts[1]));
  if (!id.has_value()) return std::nullopt;
  id->dataset = true;
  if (parts.size() < 3) return id;
  id->path = std::string(absl::StripSuffix(parts[2], "/"));
  if (!IsPlain(id->path) || id->path.empty() || id->path.front() == '/' ||
      absl::StrContains(id->path, "..")) {
    return std::nullopt;
  }
  return id;
}

}  // namespace

std::optional<HubId> ParseHubId(const std::string& path) {
  if (absl::StartsWith(path, kDatasets)) return ParseDatasetId(path);
  if (!IsPlain(path) || absl::StrContains(path, "..") || path.starts_with('.')) return std::nullopt;
  const size_t at = std::min(path.find('@'), path.size());
  const std::string repository = path.substr(0, at);
  const size_t slash = repository.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == repository.size()) {
    return std::nullopt;
  }
  if (repository.find('/', slash + 1) != std::string::npos) return std::nullopt;
  HubId id{.organisation = repository.substr(0, slash), .name = repository.substr(slash + 1)};
  if (at == path.size()) return id;
  id.revision = path.substr(at + 1);
  if (id.revision.empty()) return std::nullopt;
  return id;
}

bool IsDatasetId(const std::string& path) {
  const std::optional<HubId> id = ParseHubId(path);
  return id.has_value() && id->dataset;
}

std::vector<std::string> DownloadArguments(const HubId& id, const std::vector<std::string>& files) {
  std::vector<std::string> words = {"download", id.repository()};
  words.insert(words.end(), files.begin(), files.end());
  if (id.dataset) words.insert(words.end(), {"--repo-type", "dataset"});
  if (id.revision != "main") words.insert(words.end(), {"--revision", id.revision});
  return words;
}

std::string DownloadCommand(const HubId& id, const std::vector<std::string>& files) {
  std::string command = "hf";
  for (const std::string& word : DownloadArguments(id, files)) {
    absl::StrAppend(&command, " ", Quoted(word));
  }
  return command;
}

std::string HubHint(const std::string& path) {
  const std::optional<HubId> id = ParseHubId(path);
  if (!id.has_value()) return "";
  return absl::StrCat("; if it is a repository of the Hugging Face Hub, `", DownloadCommand(*id),
                      "` puts it where it is found, and `oxbow fetch RUN.yaml` all that a run "
                      "names");
}

}  // namespace oxbow::io
