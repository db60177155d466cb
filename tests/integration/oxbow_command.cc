// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/oxbow_command.h"

#include "base/check.h"
#include "tests/testing/process.h"

namespace oxbow::testing {

Outcome RunToEnd(std::vector<std::string> argv) {
  auto process = Process::Start({.argv = std::move(argv), .environment = {}});
  OXBOW_CHECK(process.ok()) << process.status().ToString();
  const int exit_code = (*process)->WaitExit(absl::Seconds(60)).value();
  return {exit_code, (*process)->output(), (*process)->error_output()};
}

Outcome RunOxbow(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {BinaryPath("oxbow")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return RunToEnd(std::move(argv));
}

}  // namespace oxbow::testing
