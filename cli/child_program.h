// SPDX-License-Identifier: Apache-2.0
// Programs of others that a command runs to their end.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::cli {

// A program of the PATH in `environment` ("NAME=value"); empty: there is none.
std::filesystem::path ProgramOfPath(const std::string& name,
                                    const std::vector<std::string>& environment);

// Runs a program and returns its exit code, 128 and more for a signal. `quiet`: what it says is
// left out. `printed`: a descriptor that gets its stdout instead. kUnavailable if it cannot be
// started or waited for.
absl::StatusOr<int> RunProgram(const std::filesystem::path& program,
                               std::vector<std::string> arguments,
                               const std::vector<std::string>& environment, bool quiet,
                               int printed = -1);

}  // namespace oxbow::cli
