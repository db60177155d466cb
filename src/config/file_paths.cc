// SPDX-License-Identifier: Apache-2.0
#include "config/file_paths.h"

#include <optional>

namespace oxbow::config {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> Found(const std::string& path, const fs::path& directory,
                                 const std::function<bool(const fs::path&)>& exists) {
  if (path.empty() || fs::path(path).is_absolute() || exists(path)) return std::nullopt;
  for (fs::path above = directory; !above.empty(); above = above.parent_path()) {
    if (exists(above / path)) return (above / path).string();
    if (above == above.root_path()) break;
  }
  return std::nullopt;
}

}  // namespace

std::string WhereLookedFor(const std::string& path) {
  if (fs::path(path).is_absolute()) return "";
  return " (relative paths are looked for in the working directory, then from the run "
         "file's folder upwards)";
}

void FindFilesFrom(const fs::path& directory, const std::function<bool(const fs::path&)>& exists,
                   v1::RunConfig& config) {
  const auto find = [&](std::string* path) {
    if (const auto found = Found(*path, directory, exists)) *path = *found;
  };
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

}  // namespace oxbow::config
