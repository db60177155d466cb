// SPDX-License-Identifier: Apache-2.0
// Where the replay buffers that `oxbow train` starts keep their entries.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace oxbow::run {

// One directory per shard, in the order of shards: RUN/replay, or RUN/replay-00, RUN/replay-01, ...
std::vector<std::filesystem::path> ReplayDirectories(const std::filesystem::path& run_dir,
                                                     uint32_t shards);

}  // namespace oxbow::run
