// One snapshot's new chunks, sent once round a circle.
//
//   rank 0:   Tell(CircleRound: version, chunks)  [parcel]* Meet
//   others:   Tell                                [parcel]* Meet
//
// A parcel is one large chunk, or consecutive small ones; both sides cut the same list in the same
// way, so parcels need no names. Two are under way at any time: while one travels, a member hashes
// the chunks of the other. That, and no more, is the memory a round takes besides the chunks kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "services/weights/circle.h"
#include "services/weights/download.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

inline constexpr uint64_t kParcelBytes = 1 << 20;

// chunks[first .. first + count).
struct Parcel {
  size_t first = 0;
  size_t count = 0;
  uint64_t bytes = 0;
};

// All chunks in order, as many to a parcel as `bytes_max` holds, at least one.
std::vector<Parcel> PackParcels(const std::vector<ChunkSize>& chunks,
                                uint64_t bytes_max = kParcelBytes);

// The chunks of `newer`, in order, that `older` does not have.
std::vector<ChunkSize> NewChunks(const v1::SnapshotManifest& newer,
                                 const v1::SnapshotManifest& older);

// Rank 0's side. `chunks` has all of `order`. `parcel_sent` is called after each parcel; what it
// returns, if not OK, ends the round.
absl::Status SendRound(Circle& circle, PolicyVersion version, const std::vector<ChunkSize>& order,
                       const ChunksByHash& chunks,
                       const std::function<absl::Status(uint64_t bytes)>& parcel_sent);

struct ReceivedRound {
  uint64_t bytes = 0;  // Of all parcels.
  size_t corrupt = 0;  // Chunks that were lacking and did not match their hash.
};

// The others': offers to `download` the chunks that it lacks. On an error those that were verified
// stay. kInvalidArgument: a round of chunks too large, or of more than `bytes_max` in all.
// `received`, whatever the outcome.
absl::Status ReceiveRound(Circle& circle, uint64_t bytes_max, Download& download,
                          ReceivedRound& received);

}  // namespace oxbow::weights
