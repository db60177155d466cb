// SPDX-License-Identifier: Apache-2.0
// Translates Flow-Factory's YAML to an oxbow run.
//
// Nothing is dropped silently. A key is translated, or listed as not needed, with the reason, or
// listed as a difference that the user should know. A value that would make a different run is
// refused, and so is an unknown key.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/run_config.h"

namespace oxbow::config {

struct ImportedRun {
  ResolvedConfig resolved;  // Provenance: "train.clip_range", "their default of ...", or "default".

  // Each is one line, "FILE:LINE: key: reason". With problems or unknown keys do not use the run.
  std::vector<std::string> problems;
  std::vector<std::string> unknown;

  std::vector<std::string> differences;
  std::vector<std::string> needless;
};

// Reads a whole document. `name` is the file name, for error messages; its stem names the run
// unless log.run_name does. kInvalidArgument if it is not YAML with sections.
absl::StatusOr<ImportedRun> ImportFlowFactory(const std::string& text, const std::string& name);

// The run as a YAML file: the translated values, each with its origin, and the rest as comments.
std::string ImportedYaml(const ImportedRun& run, const std::string& name);

}  // namespace oxbow::config
