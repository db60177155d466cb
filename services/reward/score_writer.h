// SPDX-License-Identifier: Apache-2.0
// Writes a batch to a reward server, in messages of which none is larger than a gRPC server takes
// that was told nothing (4 MiB): those of others often are not. A medium that does not fit comes in
// pieces (ScoreItem in proto/oxbow/v1/reward.proto).
#pragma once

#include <cstddef>
#include <functional>

#include "oxbow/v1/reward.pb.h"
#include "services/reward/score_call.h"

namespace oxbow::reward {

// Pixels of one message. The prompt and its metadata have the rest.
inline constexpr uint64_t kMessagePixelsMax = uint64_t{7} << 19;

// Calls `write` with each message, and whether it is the last one, until it returns false. Requests
// have at most `batch_max` items; a whole group stays one.
void WriteBatch(const ScoreCall& call, const ScoreBatch& batch, size_t batch_max,
                const std::function<bool(const v1::ScoreRequest& message, bool last)>& write);

}  // namespace oxbow::reward
