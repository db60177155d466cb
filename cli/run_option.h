// SPDX-License-Identifier: Apache-2.0
// A run's directory, as every command takes it: `oxbow status runs/digits`, or with --run before.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace oxbow::cli {

// `run_dir` outlives the parsing.
template <typename Path>
CLI::Option* AddRunDirectory(CLI::App& command, Path& run_dir,
                             const std::string& about = "directory of the run") {
  return command.add_option("RUN_DIR,--run", run_dir, about);
}

}  // namespace oxbow::cli
