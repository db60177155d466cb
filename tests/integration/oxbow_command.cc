// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/oxbow_command.h"

#include "base/check.h"
#include "tests/testing/process.h"

namespace oxbow::testing {

Outcome RunOxbow(const std::vector<std::string>& arguments) {
  Process::Options options;
  options.argv = {BinaryPath("oxbow")};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  auto process = Process::Start(std::move(options));
  OXBOW_CHECK(process.ok()) << process.status().ToString();
  const int exit_code = (*process)->WaitExit(absl::Seconds(60)).value();
  return {exit_code, (*process)->output(), (*process)->error_output()};
}

}  // namespace oxbow::testing
