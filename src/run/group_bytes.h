// SPDX-License-Identifier: Apache-2.0
// How many bytes the experience of a run takes, on its way to the learner and in the replay buffer.
//
// `latent_shape` is that of the model, for example [C, H, W].
#pragma once

#include <cstdint>
#include <vector>

#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// Latents that one trajectory brings at most. The final latent alone for a method that trains on
// final images; all T + 1 where tails of replayed trajectories are stochastic; else those of the
// longest window.
uint64_t LatentsMax(const v1::RunConfig& config);

// Latent bytes of one group on its way to the learner, at most.
uint64_t GroupBytesMax(const v1::RunConfig& config, const std::vector<int64_t>& latent_shape);

// Latent bytes of the groups that may be under way or waiting at once. With less in
// services.sink_bytes_max, workers would wait for room for ever.
uint64_t SinkBytesNeeded(const v1::RunConfig& config, const std::vector<int64_t>& latent_shape);

// Bytes of one entry of the replay buffer, about: the latents up to the end of the last stochastic
// step, the conditioning of its prompt, and its picture.
uint64_t EntryBytes(const v1::SamplingConfig& sampling, const std::vector<int64_t>& latent_shape,
                    uint64_t conditioning_bytes);

}  // namespace oxbow::run
