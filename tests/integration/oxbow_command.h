// SPDX-License-Identifier: Apache-2.0
// One call of the `oxbow` command, from its arguments to its exit code.
#pragma once

#include <string>
#include <vector>

namespace oxbow::testing {

struct Outcome {
  int exit_code;
  std::string output;
  std::string message;  // Its stderr.
};

// Runs the built command and waits for its end.
Outcome RunOxbow(const std::vector<std::string>& arguments);

}  // namespace oxbow::testing
