// SPDX-License-Identifier: Apache-2.0
// Cuts the images of a call into batches for reward servers.
//
// Rewards that the same servers have travel together, so that an image is sent to a server once.
// A groupwise reward gets a batch of its own that holds the whole group. Of videos those frames
// travel that some reward of the batch reads.
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
  // The frames 0, n, 2n, ... of a video travel: all that these rewards read.
  uint32_t frames_every = 1;
  std::string too_large = {};  // Why the batch cannot be sent; empty: it can.
};

// Bytes of pixels, at most.
struct BatchLimits {
  uint64_t batch_bytes = 0;      // A batch of several media has, unless it is a whole group.
  uint64_t medium_bytes = 0;     // One medium has.
  uint64_t group_bytes = 0;      // A group has that travels whole.
  uint64_t frames = UINT64_MAX;  // One video has that travel.
};

// One picture, or one video.
struct MediumSize {
  uint64_t frame_bytes = 0;  // Bytes of the pixels of one frame.
  uint64_t frames = 1;

  // Frames that travel where every n-th does, and the bytes of their pixels.
  uint64_t frames_sent(uint32_t every) const { return (frames + every - 1) / every; }
  uint64_t bytes_sent(uint32_t every) const { return frames_sent(every) * frame_bytes; }
};

// Batches that keep the limits and what the servers take. Every image is in one batch of each
// reward.
std::vector<ScoreBatch> PlanBatches(const RewardDirectory& directory,
                                    const std::vector<std::string>& rewards,
                                    const std::vector<MediumSize>& sizes,
                                    const BatchLimits& limits);

}  // namespace oxbow::reward
