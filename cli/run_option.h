// SPDX-License-Identifier: Apache-2.0
// Options that several commands have. A run's directory: `oxbow status runs/digits`, or with --run
// before, or by the name alone: `oxbow status digits`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "rpc/tls.h"

namespace oxbow::cli {

// The directory that a person means by `given`: runs/NAME where NAME is none here and that is one.
std::string RunNamed(const std::string& given);

// `given`, or where that names no files, those of the live run in `run_dir`, if they are here.
rpc::TlsOptions TlsOfRun(const rpc::TlsOptions& given, const std::string& run_dir);

// `run_dir` outlives the parsing.
template <typename Path>
CLI::Option* AddRunDirectory(CLI::App& command, Path& run_dir,
                             const std::string& about = "directory of the run") {
  return command.add_option("RUN_DIR,--run", run_dir, about)->transform(RunNamed);
}

// --set KEY=VALUE. The values outlive the parsing, here and below.
void AddSettings(CLI::App& command, std::vector<std::string>& settings);

// --format text or json.
void AddFormat(CLI::App& command, std::string& format);

// --timeout in seconds.
void AddTimeout(CLI::App& command, double& seconds, const std::string& about);

}  // namespace oxbow::cli
