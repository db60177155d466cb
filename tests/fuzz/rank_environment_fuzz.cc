// SPDX-License-Identifier: Apache-2.0
// For any environment of a launcher, NAME=VALUE a line: it is refused in one line, or names a rank
// that is one of its ranks and a port that is one.
#include <map>

#include "absl/strings/str_split.h"
#include "base/check.h"
#include "core/parallel/rank_environment.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  const std::string text(fuzz::Text(data, size));
  std::map<std::string, std::string> variables;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (const std::string& line : lines) {
    const size_t equals = line.find('=');
    if (equals != line.npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
  }
  const auto options =
      parallel::ReadRankEnvironment([&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      });
  if (!options.ok()) {
    OXBOW_CHECK(absl::IsInvalidArgument(options.status())) << options.status().ToString();
    return 0;
  }
  OXBOW_CHECK(options->size >= 1 && options->rank >= 0 && options->rank < options->size)
      << options->rank << " of " << options->size;
  OXBOW_CHECK(options->local_rank >= 0) << options->local_rank;
  OXBOW_CHECK(options->port >= 0 && options->port < 65536) << options->port;
  (void)parallel::FirstHostOf(text);
  return 0;
}
