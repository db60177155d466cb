// SPDX-License-Identifier: Apache-2.0
// Relative paths in a run's file: where they lead when a command does not run in the directory that
// the file was written for.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// Replaces each relative path of a file that is to be read (model, prompts, weights of rewards) and
// is not in the working directory by the one below `directory`, or below the nearest directory
// above it, where it exists. What is nowhere stays as it is. `exists` looks a path up.
void FindFilesFrom(const std::filesystem::path& directory,
                   const std::function<bool(const std::filesystem::path&)>& exists,
                   v1::RunConfig& config);

// Where a path that leads to nothing was looked for, as the end of an error; "" for an absolute
// one.
std::string WhereLookedFor(const std::string& path);

}  // namespace oxbow::config
