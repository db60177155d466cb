// SPDX-License-Identifier: Apache-2.0
#include "run/replay_directories.h"

#include "absl/strings/str_format.h"

namespace oxbow::run {

std::vector<std::filesystem::path> ReplayDirectories(const std::filesystem::path& run_dir,
                                                     uint32_t shards) {
  if (shards <= 1) return {run_dir / "replay"};
  std::vector<std::filesystem::path> directories;
  for (uint32_t i = 0; i < shards; ++i) {
    directories.push_back(run_dir / absl::StrFormat("replay-%02d", i));
  }
  return directories;
}

}  // namespace oxbow::run
