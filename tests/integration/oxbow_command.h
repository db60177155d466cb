// One call of the `oxbow` command, from its words to its end.
#pragma once

#include <string>
#include <vector>

namespace oxbow::testing {

struct Outcome {
  int exit_code;
  std::string output;
  std::string message;  // What it said on stderr.
};

// Runs the built command and waits for its end.
Outcome RunOxbow(const std::vector<std::string>& arguments);

}  // namespace oxbow::testing
