// SPDX-License-Identifier: Apache-2.0
// For any text as a run file: it is refused in one line that names the file, or resolved; then the
// resolved YAML, read again, is the same config.
#include <unistd.h>

#include <fstream>

#include "base/check.h"
#include "config/run_config.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/fuzz/bytes_input.h"

namespace {

void WriteTo(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const std::string path =
      "/dev/shm/oxbow_run_config_fuzz_" + std::to_string(getpid()) + ".yaml";
  WriteTo(path, fuzz::Text(data, size));
  const auto resolved = config::LoadRunConfig(path, {}, {});
  if (!resolved.ok()) {
    OXBOW_CHECK(!resolved.status().message().empty());
    std::remove(path.c_str());
    return 0;
  }
  WriteTo(path, config::ResolvedYaml(*resolved));
  const auto again = config::LoadResolved(path);
  OXBOW_CHECK(again.ok()) << again.status().ToString();
  OXBOW_CHECK(
      google::protobuf::util::MessageDifferencer::Equivalent(again.value(), resolved->config));
  std::remove(path.c_str());
  return 0;
}
