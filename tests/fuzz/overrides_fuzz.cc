// SPDX-License-Identifier: Apache-2.0
// For any overrides of a run's config, one a line, as --set and the environment give them: each is
// refused with a line for each mistake, or sets its key.
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "config/yaml_message.h"
#include "oxbow/v1/config.pb.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  v1::RunConfig config;
  config::Provenance provenance;
  const std::string text(fuzz::Text(data, size));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (const std::string& line : lines) {
    const size_t equals = line.find('=');
    if (equals == line.npos) continue;
    const absl::Status set = config::SetByText(line.substr(0, equals), line.substr(equals + 1),
                                               {.name = "--set"}, &config, &provenance);
    if (set.ok()) continue;
    OXBOW_CHECK(absl::IsInvalidArgument(set)) << set.ToString();
    for (const absl::string_view mistake : absl::StrSplit(set.message(), '\n')) {
      OXBOW_CHECK(absl::StartsWith(mistake, "--set: ")) << set.ToString();
    }
  }
  return 0;
}
