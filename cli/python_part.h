// SPDX-License-Identifier: Apache-2.0
// Commands whose work is in the Python package (python/oxbow), on the libraries of Python.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::cli {

struct PythonPart {
  std::string module;              // "oxbow.convert.weights"; run as `python3 -m MODULE ARGUMENTS`.
  std::vector<std::string> needs;  // Packages of others that it imports, by the names of PyPI.
  int printed = -1;                // A descriptor that gets its stdout; -1: this process's own.
};

// Runs it to its end and returns its exit code. Its Python is the first that has the package and
// all it needs: that of a build in the sources (.deps/venv), python3 of PATH. OXBOW_PYTHON names
// another, and then no other is tried. Beside the sources the package is theirs, whichever Python
// runs it. kUnavailable if there is none; the
// message says how to get one.
absl::StatusOr<int> RunPythonPart(const PythonPart& part, const std::vector<std::string>& arguments,
                                  std::vector<std::string> environment);

}  // namespace oxbow::cli
