// SPDX-License-Identifier: Apache-2.0
// Commands whose work is in the Python package (python/oxbow), on the libraries of Python.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::cli {

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
