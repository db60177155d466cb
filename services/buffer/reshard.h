// SPDX-License-Identifier: Apache-2.0
// Moves what the shards of a run hold to another number of shards. A prompt lives on shard
// `id % shards`.
//
// Entries keep everything: ages, uses, rewards, and their order in queues (by birth, then as they
// were). All new shards know all ids that were offered. Draws of steps that were not committed are
// gone, and so are checkpoints: the learner that goes on keeps what was born before its step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::buffer {

struct ReshardReport {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t left_out = 0;  // Lower ones of a prompt that was on two shards.
};

// `from` are all shards of one run, in their order, that no process serves; they stay as they are.
// `to` are directories that are not there yet; all of them appear at the end, when all are whole.
// Until then, and after a failure, PATH.unfinished lie beside them; the next try removes those.
// kFailedPrecondition for shards that are not those of one run in this order, or of which one is a
// copy of another, kAlreadyExists, kDataLoss if something is damaged, kUnavailable while a process
// holds one.
absl::StatusOr<ReshardReport> Reshard(const std::vector<std::filesystem::path>& from,
                                      const std::vector<std::filesystem::path>& to);

}  // namespace oxbow::buffer
