// SPDX-License-Identifier: Apache-2.0
#include "config/hub_cache.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"

namespace oxbow::config {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCommitBytesMax = 256;

// Empty: not set.
std::string ValueOf(const std::vector<std::string>& environment, const std::string& name) {
  const std::string start = name + "=";
  for (const std::string& line : environment) {
    if (absl::StartsWith(line, start)) return line.substr(start.size());
  }
  return "";
}

fs::path CacheOf(const std::vector<std::string>& environment) {
  if (const std::string cache = ValueOf(environment, "HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = ValueOf(environment, "HF_HOME"); !home.empty()) {
    return fs::path(home) / "hub";
  }
  fs::path cache = ValueOf(environment, "XDG_CACHE_HOME");
  if (cache.empty()) cache = fs::path(ValueOf(environment, "HOME")) / ".cache";
  return cache / "huggingface" / "hub";
}

// An id and its revision: a branch, a tag or a commit.
std::pair<std::string, std::string> IdAndRevision(const std::string& path) {
  const size_t at = path.find('@');
  if (at == std::string::npos) return {path, "main"};
  return {path.substr(0, at), path.substr(at + 1)};
}

}  // namespace

bool LooksLikeHubId(const std::string& path) {
  const auto [id, revision] = IdAndRevision(path);
  const size_t slash = id.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == id.size()) return false;
  if (revision.empty() || absl::StrContains(path, "..")) return false;
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("-_./", c);
  });
  std::error_code ignored;
  return plain && id.find('/', slash + 1) == std::string::npos && id.front() != '.' &&
         !fs::exists(path, ignored);
}

std::string FetchedModel(const std::string& path, const std::vector<std::string>& environment) {
  if (!LooksLikeHubId(path)) return path;
  const auto [id, revision] = IdAndRevision(path);
  const size_t slash = id.find('/');
  const fs::path model = CacheOf(environment) /
                         absl::StrCat("models--", id.substr(0, slash), "--", id.substr(slash + 1));
  const auto named = ReadFile(model / "refs" / revision, kCommitBytesMax);
  const std::string commit =
      named.ok() ? std::string(absl::StripAsciiWhitespace(*named)) : revision;
  std::error_code ignored;
  const fs::path snapshot = model / "snapshots" / commit;
  return !commit.empty() && fs::is_directory(snapshot, ignored) ? snapshot.string() : path;
}

void FindFetchedModels(const std::vector<std::string>& environment, v1::RunConfig& config) {
  const auto find = [&](std::string* path) { *path = FetchedModel(*path, environment); };
  find(config.mutable_model()->mutable_path());
  for (v1::ScorerConfig& scorer : *config.mutable_reward()->mutable_scorers()) {
    find(scorer.mutable_model());
  }
}

}  // namespace oxbow::config
