// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/fetch.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "cli/child_program.h"
#include "cli/commands.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "config/file_paths.h"
#include "config/run_config.h"
#include "io/diffusers_directory.h"
#include "io/hub_id.h"
#include "oxbow/v1/config.pb.h"
#include "services/reward/scorer_table.h"

namespace oxbow::cli {

namespace {

// Files of one kind in one repository.
struct HubFiles {
  enum class Kind { kModel, kAdapter, kReward, kTokenizer, kPrompts };
  Kind kind = Kind::kModel;
  std::vector<std::string> keys;  // That name it: "model.path".
  std::string path;               // As they name it: "ORG/NAME@REVISION".

  io::HubId id() const { return *io::ParseHubId(path); }
  // Patterns of the files that are read. A repository may have others that are as large again.
  std::vector<std::string> patterns() const;
};

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

// A path that a key of the config names.
struct NamedPath {
  Kind kind;
  std::string key;
  std::string path;
  std::string source;  // The source of its content; "" where nothing is known.
};

// In the order of the config, whose ids are no directories yet (FetchedModel). `environment` has
// lines "NAME=VALUE".
std::vector<NamedPath> PathsOf(const v1::RunConfig& config,
                               const std::vector<std::string>& environment) {
  constexpr char kPrompts[] =
      "a file of prompts, or a directory with train.txt and test.txt or the like (docs/recipes.md)";
  std::vector<NamedPath> paths = {
      {Kind::kModel, "model.path", config.model().path(), "a diffusers directory"},
      {Kind::kAdapter, "model.lora.path", config.model().lora().path(), "an adapter"},
      {Kind::kPrompts, "prompts.train", config.prompts().train(), kPrompts},
      {Kind::kPrompts, "prompts.eval", config.prompts().eval(), kPrompts}};
  for (const v1::ScorerConfig& scorer : config.reward().scorers()) {
    const auto add = [&](Kind kind, const char* key, const std::string& path) {
      paths.push_back({kind, absl::StrCat("reward.scorers.", scorer.name(), ".", key), path,
                       reward::SourceOf(scorer, key)});
    };
    add(Kind::kReward, "model", scorer.model());
    add(Kind::kReward, "head", scorer.head());
    add(Kind::kTokenizer, "tokenizer", scorer.tokenizer());
    v1::ScorerConfig found = scorer;
    config::FindFetchedModels(environment, found);
    add(Kind::kTokenizer, "tokenizer", reward::PublishedTokenizer(found));
  }
  return paths;
}

// Each repository once.
std::vector<HubFiles> HubFilesOf(const std::vector<NamedPath>& paths) {
  std::vector<HubFiles> all;
  for (const NamedPath& named : paths) {
    if (!NamesRepository(named.kind, named.path)) continue;
    const auto same = std::find_if(all.begin(), all.end(), [&](const HubFiles& files) {
      return files.kind == named.kind && files.path == named.path;
    });
    if (same != all.end()) {
      same->keys.push_back(named.key);
    } else {
      all.push_back({.kind = named.kind, .keys = {named.key}, .path = named.path});
    }
  }
  return all;
}

// Where the cache has them; "" if it has none, or not all: the client ended before the last file.
std::string WholeIn(const HubFiles& files, const std::vector<std::string>& environment) {
  const std::string directory = config::FetchedModel(files.path, environment);
  if (directory == files.path) return "";
  if (fs::is_regular_file(directory)) return directory;  // The cache links to whole files alone.
  const bool whole = HasWholeFiles(directory) && HasKind(files, directory);
  return whole ? directory : "";
}

// The command that `hf download` stands for, in a Python that has the package without the program.
constexpr char kPython[] =
    "import sys\n"
    "from huggingface_hub import snapshot_download\n"
    "print(snapshot_download(sys.argv[1], repo_type=sys.argv[2], revision=sys.argv[3], "
    "allow_patterns=sys.argv[4:]))\n";

struct Client {
  fs::path program;
  bool python = false;  // The module of a Python.
};

std::optional<Client> FindClient(const std::vector<std::string>& environment) {
  if (fs::path hf = ProgramOfPath("hf", environment); !hf.empty()) return Client{std::move(hf)};
  fs::path python = ProgramOfPath("python3", environment);
  if (python.empty()) return std::nullopt;
  const auto exit =
      RunProgram(python, {"-c", "import huggingface_hub"}, environment, /*quiet=*/true);
  if (!exit.ok() || *exit != 0) return std::nullopt;
  return Client{std::move(python), /*python=*/true};
}

std::vector<std::string> ArgumentsOf(const Client& client, const HubFiles& files) {
  const std::vector<std::string> patterns = files.patterns();
  if (!client.python) return io::DownloadArguments(files.id(), patterns);
  const io::HubId id = files.id();
  std::vector<std::string> words = {"-c", kPython, id.repository(),
                                    id.dataset ? "dataset" : "model", id.revision};
  words.insert(words.end(), patterns.begin(), patterns.end());
  return words;
}

absl::Status FetchOne(const Client& client, const HubFiles& files,
                      const std::vector<std::string>& environment) {
  const auto exit = RunProgram(client.program, ArgumentsOf(client, files), environment, false);
  if (!exit.ok()) return Annotate(exit.status(), client.program.string());
  if (*exit != 0) {
    return absl::UnavailableError(absl::StrCat(
        files.path, " was not fetched: ", client.program.string(), " ended with exit code ", *exit,
        "; its reason is above. A gated repository wants its licence accepted on the Hub, and "
        "`hf auth login`"));
  }
  if (!WholeIn(files, environment).empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(files.path,
                   ": the client ended without an error, and the Hub's cache does not "
                   "have all that a run reads of it (HF_HUB_CACHE, HF_HOME)"));
}

// Ids stay ids where the cache has nothing.
std::vector<std::string> WithoutCache(std::vector<std::string> environment) {
  environment.insert(environment.begin(), "HF_HUB_CACHE=/dev/null");
  return environment;
}

// Says which directories and files that no id names are not there. Returns how many.
size_t SayLocalFiles(const std::vector<NamedPath>& paths, std::ostream& out) {
  size_t missing = 0;
  for (const NamedPath& file : paths) {
    std::error_code ignored;
    if (file.path.empty() || NamesRepository(file.kind, file.path) ||
        fs::exists(file.path, ignored)) {
      continue;
    }
    ++missing;
    out << file.key << ": there is nothing at " << file.path << config::WhereLookedFor(file.path)
        << "; no id names it, so put it there or set " << file.key
        << (file.source.empty() ? "" : ": " + file.source) << "\n";
  }
  return missing;
}

absl::Status FetchIds(const FetchOptions& options, const std::vector<NamedPath>& paths,
                      const std::vector<std::string>& environment, std::ostream& out) {
  std::vector<HubFiles> missing;
  const std::vector<HubFiles> all = HubFilesOf(paths);
  if (all.empty()) out << "the run names nothing by an id of the Hugging Face Hub\n";
  for (const HubFiles& files : all) {
    const std::string directory = WholeIn(files, environment);
    if (directory.empty()) missing.push_back(files);
    out << absl::StrJoin(files.keys, ", ") << ": " << files.path
        << (directory.empty() ? " is to be fetched" : " is in the cache: " + directory) << "\n";
  }
  out << std::flush;
  if (missing.empty()) return absl::OkStatus();
  const std::optional<Client> client = options.print ? std::nullopt : FindClient(environment);
  if (!client.has_value()) {
    for (const HubFiles& files : missing) {
      out << io::DownloadCommand(files.id(), files.patterns()) << "\n";
    }
    out << std::flush;
    if (options.print) return absl::OkStatus();
    return absl::UnavailableError(
        "no client of the Hub is here (the program hf, or a python3 with huggingface_hub): `pip "
        "install huggingface_hub`, then run the commands above, also on another machine with this "
        "cache");
  }
  for (const HubFiles& files : missing) {
    OXBOW_RETURN_IF_ERROR(FetchOne(*client, files, environment));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Fetch(const FetchOptions& options, const std::vector<std::string>& environment,
                   std::ostream& out) {
  OXBOW_ASSIGN_OR_RETURN(
      const config::ResolvedConfig resolved,
      config::LoadRunConfig(options.file, options.set, WithoutCache(environment)));
  const std::vector<NamedPath> paths = PathsOf(resolved.config, environment);
  const absl::Status fetched = FetchIds(options, paths, environment, out);
  const size_t missing = SayLocalFiles(paths, out);
  OXBOW_RETURN_IF_ERROR(fetched);
  if (options.print) return absl::OkStatus();
  if (missing > 0) {
    return absl::NotFoundError(absl::StrCat(missing,
                                            missing == 1
                                                ? " file or directory that no id names is"
                                                : " files or directories that no id names are",
                                            " missing: see above"));
  }
  out << "all is there: oxbow validate " << options.file << "\n";
  return absl::OkStatus();
}

void AddFetch(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<FetchOptions>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand(kFetch.name, kFetch.says);
  command->footer(
      "Example: oxbow fetch configs/recipes/sd35m-pickscore.yaml\n"
      "Model, rewards, tokenizers and prompts; of each repository the part that is read. Then says "
      "which\nfiles that no id names are missing. Exit code 3: there is no client (then the "
      "commands are printed),\nor it failed; 4: such a file is missing.");
  command->add_option("file", options->file, "run YAML")->required();
  AddSettings(*command, options->set);
  command->add_flag("--print", options->print, "print the commands, and run none");
  command->callback([options, &exit_code] {
    exit_code = Ended("fetch", Fetch(*options, config::ProcessEnvironment(), std::cout));
  });
}

}  // namespace oxbow::cli
