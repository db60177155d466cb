// SPDX-License-Identifier: Apache-2.0
// Programs of others that a command runs to their end, or becomes.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::cli {

// A program of the PATH in `environment` ("NAME=value"); empty: there is none.
std::filesystem::path ProgramOfPath(const std::string& name,
                                    const std::vector<std::string>& environment);

// Runs a program and returns its exit code, 128 and more for a signal. `printed`: a descriptor that
// gets its stdout. `quiet`: what it says is left out, or goes to `printed`, stderr too. `killed` is
// asked again and again, and may wait: true kills the program. kUnavailable if it cannot be started
// or waited for.
absl::StatusOr<int> RunProgram(const std::filesystem::path& program,
                               std::vector<std::string> arguments,
                               const std::vector<std::string>& environment, bool quiet,
                               int printed = -1, const std::function<bool()>& killed = nullptr);

// Commands whose work is in the Python package (python/oxbow), on the libraries of Python.
struct PythonPart {
  std::string module;              // "oxbow.convert.weights"; run as `python3 -m MODULE ARGUMENTS`.
  std::vector<std::string> needs;  // Packages of others that it imports, by the names of PyPI.
  std::string extra;               // The extra of python/pyproject.toml that installs these.
  std::string folder = "python";   // Where the sources have it.
};

// A part that can be started.
struct PythonCall {
  std::filesystem::path python;
  std::vector<std::string> words;  // Behind the program's name.
  std::vector<std::string> environment;
};

// The Python is the first that has the part's package and all it needs: those of a build in the
// sources (.deps/venv, .deps/export), python3 of PATH. OXBOW_PYTHON names another, and then no
// other is tried. Beside the sources the package is theirs, whichever Python runs it. `environment`
// is the part's, in full; OXBOW_PROGRAM in it becomes this program. kUnavailable if there is no
// such Python; the message says how to get one.
absl::StatusOr<PythonCall> FindPythonPart(const PythonPart& part,
                                          const std::vector<std::string>& arguments,
                                          std::vector<std::string> environment);

// This process becomes the part that FindPythonPart finds: its exit code, its signals and its
// terminal are the part's. So it returns only where that failed.
absl::Status BecomePythonPart(const PythonPart& part, const std::vector<std::string>& arguments,
                              std::vector<std::string> environment);

}  // namespace oxbow::cli
