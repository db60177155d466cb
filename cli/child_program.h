// SPDX-License-Identifier: Apache-2.0
// Programs of others that a command runs to their end, or becomes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
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

// Commands whose work is in the Python package (python/oxbow), on the libraries of Python.
struct PythonPart {
  std::string module;              // "oxbow.convert.weights"; run as `python3 -m MODULE ARGUMENTS`.
  std::vector<std::string> needs;  // Packages of others that it imports, by the names of PyPI.
  std::string extra;               // The extra of python/pyproject.toml that installs these.
};

// This process becomes the part: its exit code, its signals and its terminal are the part's. So it
// returns only where that failed. The Python is the first that has the package and all it needs:
// that of a build in the sources (.deps/venv), python3 of PATH. OXBOW_PYTHON names another, and
// then no other is tried. Beside the sources the package is theirs, whichever Python runs it.
// `environment` is the part's, in full; OXBOW_PROGRAM in it becomes this program. kUnavailable if
// there is no such Python; the message says how to get one.
absl::Status BecomePythonPart(const PythonPart& part, const std::vector<std::string>& arguments,
                              std::vector<std::string> environment);

// The same as a child: runs it to its end and returns its exit code. `printed`: a descriptor that
// gets its stdout.
absl::StatusOr<int> RunPythonPart(const PythonPart& part, const std::vector<std::string>& arguments,
                                  std::vector<std::string> environment, int printed);

}  // namespace oxbow::cli
