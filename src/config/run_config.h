// SPDX-License-Identifier: Apache-2.0
// The config of one run: overrides on top of a YAML file, on top of a recipe, on top of the
// defaults.
//
// Precedence: --set a.b=c  >  environment OXBOW__A__B  >  run file  >  recipe  >
// configs/defaults.yaml. A run file may name a recipe with the top-level key `recipe: NAME`, and a
// recipe may name another one that it builds on. NAME is that of a built-in recipe, or the path of
// a file from the directory of the file that names it. Relative paths inside a run file are
// relative to the working directory; what is not there is looked for from the file's directory up
// (file_paths.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/yaml_message.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

inline constexpr char kDefaultSource[] = "default";

// In a run's directory: what it runs with, and what it ran with before it was moved or renamed, if
// a version that knew checkpoints by that has written them.
inline constexpr char kResolvedConfig[] = "config.resolved.yaml";
inline constexpr char kFormerConfig[] = "config.former.yaml";

// A config in which every value is set, and the source of each value: "--set", "environment
// OXBOW__A__B", "FILE:LINE", "recipe NAME" or "default".
struct ResolvedConfig {
  v1::RunConfig config;
  Provenance provenance;
  bool counted_ranks = false;    // learner.ranks was `auto`.
  bool counted_workers = false;  // services.rollout_workers was.
  bool chosen_memory = false;    // model.memory was.
};

inline constexpr int kLeaveAuto = -1;

// Resolves a run's config. An empty `path` means no file. `overrides` are "a.b=c" (or
// "recipe=NAME"); later ones win. `environment` holds "NAME=VALUE" lines, of which only OXBOW__*
// are used. `gpus` are those of the machine that the run starts on, by which `auto` is counted
// (device_plan.h); kLeaveAuto leaves it. kNotFound if the file does not exist; kInvalidArgument
// with "FILE:LINE: key: reason" for any error in it.
absl::StatusOr<ResolvedConfig> LoadRunConfig(const std::filesystem::path& path,
                                             const std::vector<std::string>& overrides,
                                             const std::vector<std::string>& environment,
                                             int gpus = 0);

// The config of a run that goes on in `run_dir`, wherever that lies: its config.resolved.yaml, with
// run.name and run.directory of the place. Values keep the sources that the file says.
absl::StatusOr<ResolvedConfig> LoadRunAgain(const std::filesystem::path& run_dir,
                                            const std::vector<std::string>& overrides,
                                            const std::vector<std::string>& environment);

// This process's environment in the form that LoadRunConfig takes.
std::vector<std::string> ProcessEnvironment();

// The names of the recipes that values come from, in order; "" without a recipe.
std::string RecipesOf(const Provenance& provenance);

// Reads a file of WriteResolved. Ignores the environment and recipes. A key that this binary knows
// and the file does not have gets its default.
absl::StatusOr<v1::RunConfig> LoadResolved(const std::filesystem::path& path);

// The whole config as YAML in the schema's order; a comment at each value says its source.
std::string ResolvedYaml(const ResolvedConfig& resolved);
// The same, but only values that are not defaults.
std::string ChosenYaml(const ResolvedConfig& resolved);
absl::Status WriteResolved(const ResolvedConfig& resolved, const std::filesystem::path& path);

// The YAML files compiled into every binary: configs/defaults.yaml, configs/recipes/NAME.yaml and
// configs/sets/NAME.yaml.
std::string_view DefaultsYaml();

// Name and text of every recipe, by name.
const std::vector<std::pair<std::string, std::string>>& Recipes();

// The same of every set of prompts for `oxbow eval --set`.
const std::vector<std::pair<std::string, std::string>>& EvaluationSets();

}  // namespace oxbow::config
