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

// Runs a program, argv[0], and waits for its end.
Outcome RunToEnd(std::vector<std::string> argv);

// The same of the built command.
Outcome RunOxbow(const std::vector<std::string>& arguments);

}  // namespace oxbow::testing
