// Cuts the images of a call into batches for reward servers.
//
// Rewards that the same servers have travel together, so that an image is sent to a server once.
// A groupwise reward gets a batch of its own that holds the whole group.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/image8.h"
#include "services/reward/reward_directory.h"

namespace oxbow::reward {

struct ScoreBatch {
  std::vector<size_t> images;  // Indices.
  std::vector<std::string> rewards;
  bool whole_group = false;
  std::string too_large = {};  // Why the batch cannot be sent; empty: it can.
};

// Batches of at most `bytes_max` and of what the servers take. Every image is in one batch of each
// reward.
std::vector<ScoreBatch> PlanBatches(const RewardDirectory& directory,
                                    const std::vector<std::string>& rewards,
                                    const std::vector<Image8>& images, size_t bytes_max);

}  // namespace oxbow::reward
