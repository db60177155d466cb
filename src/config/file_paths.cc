// SPDX-License-Identifier: Apache-2.0
#include "config/file_paths.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/process.h"
#include "io/hub_id.h"

namespace oxbow::config {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCommitBytesMax = 256;

fs::path CacheOf(const std::vector<std::string>& environment) {
  if (const std::string cache = ValueIn(environment, "HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = ValueIn(environment, "HF_HOME"); !home.empty()) {
    return fs::path(home) / "hub";
  }
  fs::path cache = ValueIn(environment, "XDG_CACHE_HOME");
  if (cache.empty()) cache = fs::path(ValueIn(environment, "HOME")) / ".cache";
  return cache / "huggingface" / "hub";
}

// A path into a snapshot names repository and commit. They may lie in another cache by now.
std::string MovedSnapshot(const std::string& path, const std::vector<std::string>& environment) {
  std::error_code ignored;
  for (const char* const repository : {"/models--", "/datasets--"}) {
    const size_t at = path.rfind(repository);
    if (at == path.npos) continue;
    const fs::path moved = CacheOf(environment) / path.substr(at + 1);
    if (fs::exists(moved, ignored)) return moved.string();
  }
  return path;
}

std::string FoundFrom(const fs::path& directory, const std::string& path) {
  std::error_code ignored;
  if (path.empty() || fs::path(path).is_absolute() || fs::exists(path, ignored)) return path;
  for (fs::path above = directory; !above.empty(); above = above.parent_path()) {
    if (fs::exists(above / path, ignored)) return (above / path).string();
    if (above == above.root_path()) break;
  }
  return path;
}

}  // namespace

std::string FetchedModel(const std::string& path, const std::vector<std::string>& environment) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  const std::optional<io::HubId> id = io::ParseHubId(path);
  if (!id.has_value()) return MovedSnapshot(path, environment);
  const fs::path model =
      CacheOf(environment) /
      absl::StrCat(id->dataset ? "datasets--" : "models--", id->organisation, "--", id->name);
  const auto named = ReadFile(model / "refs" / id->revision, kCommitBytesMax);
  const std::string commit =
      named.ok() ? std::string(absl::StripAsciiWhitespace(*named)) : id->revision;
  const fs::path snapshot = model / "snapshots" / commit;
  const fs::path found = id->path.empty() ? snapshot : snapshot / id->path;
  const bool there = fs::is_directory(found, ignored) ||
                     (!id->path.empty() && fs::is_regular_file(found, ignored));
  return !commit.empty() && there ? found.string() : path;
}

void FindFetchedModels(const std::vector<std::string>& environment, v1::ScorerConfig& scorer) {
  const auto find = [&](std::string* path) { *path = FetchedModel(*path, environment); };
  if (!scorer.model().empty()) find(scorer.mutable_model());
  if (!scorer.head().empty()) find(scorer.mutable_head());
  if (!scorer.tokenizer().empty()) find(scorer.mutable_tokenizer());
}

void FindFetchedModels(const std::vector<std::string>& environment, v1::RunConfig& config) {
  const auto find = [&](std::string* path) { *path = FetchedModel(*path, environment); };
  find(config.mutable_model()->mutable_path());
  find(config.mutable_model()->mutable_lora()->mutable_path());
  const auto find_prompts = [&](std::string* path) {
    if (io::IsDatasetId(*path) || fs::path(*path).is_absolute()) find(path);
  };
  find_prompts(config.mutable_prompts()->mutable_train());
  find_prompts(config.mutable_prompts()->mutable_eval());
  for (v1::ScorerConfig& scorer : *config.mutable_reward()->mutable_scorers()) {
    FindFetchedModels(environment, scorer);
  }
}

std::string WhereLookedFor(const std::string& path) {
  if (fs::path(path).is_absolute()) return "";
  return " (relative paths are looked for in the working directory, then from the run "
         "file's folder upwards)";
}

void FindFilesFrom(const fs::path& directory, v1::RunConfig& config) {
  std::error_code ignored;
  const fs::path from = fs::absolute(directory, ignored);
  const auto find = [&](std::string* path) { *path = FoundFrom(from, *path); };
  find(config.mutable_model()->mutable_path());
  find(config.mutable_model()->mutable_lora()->mutable_path());
  find(config.mutable_prompts()->mutable_train());
  find(config.mutable_prompts()->mutable_eval());
  find(config.mutable_prompts()->mutable_cache());
  for (v1::ScorerConfig& scorer : *config.mutable_reward()->mutable_scorers()) {
    find(scorer.mutable_model());
    find(scorer.mutable_head());
    if (!scorer.tokenizer().empty()) find(scorer.mutable_tokenizer());
    find(scorer.mutable_key_file());
  }
}

absl::StatusOr<CopyTarget> ParseCopyTarget(const std::string& text) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "command:")) return CopyTarget{.directory = text, .command = {}};
  const std::string command(absl::StripAsciiWhitespace(rest));
  if (command.find("{}") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a command needs {} where the checkpoint's directory goes, got \"", text, "\""));
  }
  return CopyTarget{.directory = {}, .command = command};
}

}  // namespace oxbow::config
