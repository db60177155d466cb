// Cuts the images of a call into batches for reward servers.
//
// Rewards that the same servers have travel together, so that an image is sent to a server once.
// A groupwise reward gets a batch of its own that holds the whole group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "services/reward/reward_directory.h"

namespace oxbow::reward {

struct ScoreBatch {
  std::vector<size_t> images;  // Indices.
  std::vector<std::string> rewards;
  bool whole_group = false;
  std::string too_large = {};  // Why the batch cannot be sent; empty: it can.
};

// Bytes of pixels, at most.
struct BatchLimits {
  uint64_t batch_bytes = 0;   // A batch of several media has, unless it is a whole group.
  uint64_t medium_bytes = 0;  // One medium has.
  uint64_t group_bytes = 0;   // A group has that travels whole.
};

// Batches that keep the limits and what the servers take. `bytes` are those of the pixels, by
// image. Every image is in one batch of each reward.
std::vector<ScoreBatch> PlanBatches(const RewardDirectory& directory,
                                    const std::vector<std::string>& rewards,
                                    const std::vector<uint64_t>& bytes, const BatchLimits& limits);

}  // namespace oxbow::reward
