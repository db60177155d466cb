// SPDX-License-Identifier: Apache-2.0
// The decision on an offered entry: rules of the store around those of core/replay.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/buffer/live_replay.h"

namespace oxbow::buffer {

// Decides, and changes the state and the batch accordingly. Requires a state that may change.
OfferResult DecideOffer(LiveReplay& live, Entry& entry, rocksdb::WriteBatch& batch);

// Forgets ids until `count` more can be remembered. kOutOfRange where the present step alone has
// too many: its offers may still be repeated.
absl::Status MakeRoomForIds(LiveReplay& live, uint64_t count, rocksdb::WriteBatch& batch);

}  // namespace oxbow::buffer
