// SPDX-License-Identifier: Apache-2.0
// The header that a worker sends of a group: how much of the group goes with it, which no credit of
// the sink holds back, and the one sample that has a picture there.
#pragma once

#include <cstdint>

#include "oxbow/v1/common.pb.h"

namespace oxbow::rpc {

// Latent bytes of all samples together; more come in chunks.
inline constexpr uint64_t kHeaderLatentBytes = uint64_t{64} << 10;

// The sample that may become a replay entry: the best fresh one (ties: the lowest index). Null if
// no fresh sample was scored.
inline const v1::Trajectory* BestFresh(const v1::Group& group) {
  const v1::Trajectory* best = nullptr;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (trajectory.replayed() || trajectory.reward_failed()) continue;
    const bool better =
        best == nullptr || trajectory.reward() > best->reward() ||
        (trajectory.reward() == best->reward() && trajectory.sample() < best->sample());
    if (better) best = &trajectory;
  }
  return best;
}

}  // namespace oxbow::rpc
