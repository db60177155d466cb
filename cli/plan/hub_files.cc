// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/hub_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"
#include "config/hub_cache.h"
#include "io/diffusers_directory.h"
#include "services/reward/scorer_table.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;
using Kind = HubFiles::Kind;

constexpr uint64_t kIndexBytesMax = 64 << 20;
constexpr char kIndexEnd[] = ".safetensors.index.json";

nlohmann::json JsonIn(const fs::path& file) {
  const auto text = ReadFile(file, kIndexBytesMax);
  return text.ok() ? ParseJson(*text) : nlohmann::json();
}

// The folders of all pipelines' components.
std::set<std::string> Components() {
  std::set<std::string> names;
  for (const io::Pipeline& pipeline : io::PipelineTable()) {
    for (const io::PipelineComponent& component : pipeline.components) names.insert(component.name);
  }
  return names;
}

// The folders that model_index.json names are there.
bool HasComponents(const fs::path& directory) {
  const nlohmann::json index = JsonIn(directory / "model_index.json");
  if (!index.is_object()) return false;
  const std::set<std::string> known = Components();
  std::error_code ignored;
  for (const auto& [name, made_by] : index.items()) {
    const bool absent = !made_by.is_array() || made_by.empty() || made_by.front().is_null();
    if (!absent && known.contains(name) && !fs::is_directory(directory / name, ignored)) {
      return false;
    }
  }
  return true;
}

// Every file that an index of weights names is there, and none is half there: the cache has those
// below blobs/, beside snapshots/.
bool HasWholeFiles(const fs::path& snapshot) {
  std::error_code error;
  const fs::path blobs = snapshot.parent_path().parent_path() / "blobs";
  for (fs::directory_iterator blob(blobs, error); !error && blob != fs::directory_iterator();
       blob.increment(error)) {
    if (blob->path().extension() == ".incomplete") return false;
  }
  error.clear();
  fs::recursive_directory_iterator file(snapshot, error);
  for (; !error && file != fs::recursive_directory_iterator(); file.increment(error)) {
    const fs::path& path = file->path();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return false;
    if (!path.filename().string().ends_with(kIndexEnd)) continue;
    const nlohmann::json index = JsonIn(path);
    if (!index.is_object() || !index.contains("weight_map")) return false;
    for (const auto& [tensor, shard] : index["weight_map"].items()) {
      if (!shard.is_string() ||
          !fs::exists(path.parent_path() / shard.get<std::string>(), ignored)) {
        return false;
      }
    }
  }
  return true;
}

bool HasOne(const fs::path& directory, const std::vector<std::string>& ends) {
  std::error_code error;
  fs::recursive_directory_iterator file(directory, error);
  for (; !error && file != fs::recursive_directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (std::any_of(ends.begin(), ends.end(),
                    [&](const std::string& end) { return name.ends_with(end); })) {
      return true;
    }
  }
  return false;
}

bool HasKind(const HubFiles& files, const fs::path& directory) {
  switch (files.kind) {
    case Kind::kModel:
      return HasComponents(directory);
    case Kind::kTokenizer:
      return HasOne(directory, {"tokenizer.json", "vocab.json"});
    case Kind::kAdapter:
    case Kind::kReward:
      return HasOne(directory, {".safetensors"});
    case Kind::kPrompts:
      return HasOne(directory, {".txt", ".jsonl"});
  }
  return false;
}

// Whether `path` is an id of a repository of that kind, and nothing here has its name.
bool NamesRepository(Kind kind, const std::string& path) {
  std::error_code ignored;
  const std::optional<io::HubId> id = io::ParseHubId(path);
  return id.has_value() && id->dataset == (kind == Kind::kPrompts) && !fs::exists(path, ignored);
}

void AddFiles(Kind kind, const std::string& key, const std::string& path,
              std::vector<HubFiles>& all) {
  if (!NamesRepository(kind, path)) return;
  const auto same = std::find_if(all.begin(), all.end(), [&](const HubFiles& files) {
    return files.kind == kind && files.path == path;
  });
  if (same != all.end()) {
    same->keys.push_back(key);
  } else {
    all.push_back({.kind = kind, .keys = {key}, .path = path});
  }
}

}  // namespace

std::vector<std::string> HubFiles::patterns() const {
  std::vector<std::string> patterns;
  switch (kind) {
    case Kind::kModel:
      patterns.emplace_back("model_index.json");
      for (const std::string& component : Components()) patterns.push_back(component + "/*");
      return patterns;
    case Kind::kTokenizer:
      return reward::TokenizerFiles();
    case Kind::kAdapter:
      return {"*.json", "*.safetensors"};
    case Kind::kReward:
      return {"*.json", "*.safetensors", "*.txt"};
    case Kind::kPrompts: {
      const std::string inside = id().path;
      if (inside.ends_with(".txt") || inside.ends_with(".jsonl")) return {inside};
      const std::string folder = inside.empty() ? "" : inside + "/";
      return {folder + "*.txt", folder + "*.jsonl"};
    }
  }
  return patterns;
}

std::vector<HubFiles> HubFilesOf(const v1::RunConfig& config,
                                 const std::vector<std::string>& environment) {
  std::vector<HubFiles> all;
  AddFiles(Kind::kModel, "model.path", config.model().path(), all);
  AddFiles(Kind::kAdapter, "model.lora.path", config.model().lora().path(), all);
  AddFiles(Kind::kPrompts, "prompts.train", config.prompts().train(), all);
  AddFiles(Kind::kPrompts, "prompts.eval", config.prompts().eval(), all);
  for (const v1::ScorerConfig& scorer : config.reward().scorers()) {
    const std::string key = absl::StrCat("reward.scorers.", scorer.name(), ".");
    AddFiles(Kind::kReward, key + "model", scorer.model(), all);
    AddFiles(Kind::kReward, key + "head", scorer.head(), all);
    AddFiles(Kind::kTokenizer, key + "tokenizer", scorer.tokenizer(), all);
    v1::ScorerConfig found = scorer;
    config::FindFetchedModels(environment, found);
    AddFiles(Kind::kTokenizer, key + "tokenizer", reward::PublishedTokenizer(found), all);
  }
  return all;
}

std::vector<LocalFile> LocalFilesMissing(const v1::RunConfig& config) {
  std::vector<LocalFile> missing;
  const auto look = [&](Kind kind, const std::string& key, const std::string& path,
                        const std::string& source) {
    std::error_code ignored;
    if (path.empty() || NamesRepository(kind, path) || fs::exists(path, ignored)) return;
    missing.push_back({.key = key, .path = path, .source = source});
  };
  constexpr char kPrompts[] =
      "a file of prompts, or a directory with train.txt and test.txt or "
      "the like (docs/recipes.md)";
  look(Kind::kModel, "model.path", config.model().path(), "a diffusers directory");
  look(Kind::kAdapter, "model.lora.path", config.model().lora().path(), "an adapter");
  look(Kind::kPrompts, "prompts.train", config.prompts().train(), kPrompts);
  look(Kind::kPrompts, "prompts.eval", config.prompts().eval(), kPrompts);
  for (const v1::ScorerConfig& scorer : config.reward().scorers()) {
    for (const auto& [key, kind, path] :
         {std::tuple("model", Kind::kReward, scorer.model()),
          std::tuple("head", Kind::kReward, scorer.head()),
          std::tuple("tokenizer", Kind::kTokenizer, scorer.tokenizer())}) {
      look(kind, absl::StrCat("reward.scorers.", scorer.name(), ".", key), path,
           reward::SourceOf(scorer, key));
    }
  }
  return missing;
}

std::string WholeIn(const HubFiles& files, const std::vector<std::string>& environment) {
  const std::string directory = config::FetchedModel(files.path, environment);
  if (directory == files.path) return "";
  if (fs::is_regular_file(directory)) return directory;  // The cache links to whole files alone.
  const bool whole = HasWholeFiles(directory) && HasKind(files, directory);
  return whole ? directory : "";
}

}  // namespace oxbow::cli
