// From Flow-Factory's YAML to a run of ours.
//
// Nothing is dropped in silence. A key is carried over, or named as needless here with the reason,
// or as a difference that a person should know; a value that would make another run than theirs is
// refused, and so are keys nobody knows.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/run_config.h"

namespace oxbow::config {

struct ImportedRun {
  ResolvedConfig resolved;  // Provenance: "train.clip_range", "their default of ...", or "default".

  // Each one line, "FILE:LINE: key: reason". With problems or unknown keys no run should be made.
  std::vector<std::string> problems;
  std::vector<std::string> unknown;

  std::vector<std::string> differences;
  std::vector<std::string> needless;
};

// Reads a whole document. `name` is the file's, for places; its stem names the run unless
// log.run_name does. kInvalidArgument if it is no YAML of sections.
absl::StatusOr<ImportedRun> ImportFlowFactory(const std::string& text, const std::string& name);

// The run as a YAML file: what was carried over, each value with its origin, and the rest as
// comments.
std::string ImportedYaml(const ImportedRun& run, const std::string& name);

}  // namespace oxbow::config
