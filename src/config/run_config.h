// The configuration of one run: a YAML file over a recipe over the defaults, with overrides on top.
//
// Precedence: --set a.b=c  >  environment OXBOW__A__B  >  run file  >  recipe  >
// configs/defaults.yaml. A run file may name a recipe with the top-level key `recipe: NAME`, and a
// recipe another one that it builds on.
// Relative paths inside a run file are relative to the working directory, not to the file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/yaml_message.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

inline constexpr char kDefaultSource[] = "default";

// A config in which every value is set, and where each came from:
// "--set", "environment OXBOW__A__B", "FILE:LINE", "recipe NAME" or "default".
struct ResolvedConfig {
  v1::RunConfig config;
  Provenance provenance;
};

// Resolves a run. `path` empty: no file. `overrides` are "a.b=c" (or "recipe=NAME"), later ones
// win; `environment` is "NAME=VALUE" lines, of which only OXBOW__* count. kNotFound without the
// file; kInvalidArgument with "FILE:LINE: key: reason" for anything that is wrong in it.
absl::StatusOr<ResolvedConfig> LoadRunConfig(const std::filesystem::path& path,
                                             const std::vector<std::string>& overrides,
                                             const std::vector<std::string>& environment);

// This process's environment as LoadRunConfig takes it.
std::vector<std::string> ProcessEnvironment();

// Reads what WriteResolved wrote. The environment and recipes play no part; keys that a newer
// binary knows and the file does not take their default.
absl::StatusOr<v1::RunConfig> LoadResolved(const std::filesystem::path& path);

// The whole config as YAML in the schema's order, each value with a comment that says its source.
std::string ResolvedYaml(const ResolvedConfig& resolved);
// The same of those values alone that are not defaults.
std::string ChosenYaml(const ResolvedConfig& resolved);
absl::Status WriteResolved(const ResolvedConfig& resolved, const std::filesystem::path& path);

}  // namespace oxbow::config
