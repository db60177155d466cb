// SPDX-License-Identifier: Apache-2.0
// Paths in a run's file: where they lead when a command does not run in the directory that the file
// was written for, ids of the Hugging Face Hub, and the place for copies of checkpoints.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// Models and datasets of the Hugging Face Hub that `hf download` has put into its cache.
//
//   <cache>/models--ORG--NAME/refs/main        the commit that was downloaded; datasets--...
//   likewise <cache>/models--ORG--NAME/snapshots/COMMIT  its files
//
// The layout is that of huggingface_hub (guides/manage-cache). Nothing is fetched from a network.
//
// The files of the repository that `path` is the id of (io/hub_id.h), of a dataset the file or
// directory that it names, where the cache has them; of a snapshot that is not there any more the
// same one in this cache; otherwise `path`, as also where there is such a file. The cache is
// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. `environment` has lines "NAME=VALUE".
std::string FetchedModel(const std::string& path, const std::vector<std::string>& environment);

// The same for all that a reward reads, and for all that a run does.
void FindFetchedModels(const std::vector<std::string>& environment, v1::ScorerConfig& scorer);
void FindFetchedModels(const std::vector<std::string>& environment, v1::RunConfig& config);

// Replaces each relative path of a file that is to be read (model, prompts, weights of rewards) and
// is not in the working directory by the one below `directory`, or below the nearest directory
// above it, where it exists. What is nowhere stays as it is.
void FindFilesFrom(const std::filesystem::path& directory, v1::RunConfig& config);

// Where a path that leads to nothing was looked for, as the end of an error; "" for an absolute
// one.
std::string WhereLookedFor(const std::string& path);

// The value of `checkpoint.copy_to`: a second place for each checkpoint.
struct CopyTarget {
  std::filesystem::path directory;  // Empty: it is a command.
  std::string command;              // For sh; {} stands for the checkpoint's directory.
};

// "command: COMMAND", else a directory. kInvalidArgument for a command without {}.
absl::StatusOr<CopyTarget> ParseCopyTarget(const std::string& text);

}  // namespace oxbow::config
