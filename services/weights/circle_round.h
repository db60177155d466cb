// A round: the new chunks of one snapshot, sent to all members of a circle at once.
//
//   rank 0:   Tell(CircleRound: version, chunks)  [parcel]* Meet
//   others:   Tell                                [parcel]* Meet
//
// A parcel is one large chunk, or consecutive small ones. Both sides cut the same list in the same
// way, so parcels need no names. Two are under way at any time: while one is received, a member
// hashes the chunks of the other. Besides the chunks that are kept, a round needs memory for these
// two parcels only.
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

// Cuts all chunks, in order, into parcels of at most `bytes_max` bytes or of one chunk.
std::vector<Parcel> PackParcels(const std::vector<ChunkSize>& chunks,
                                uint64_t bytes_max = kParcelBytes);

// The chunks of `newer`, in order, that `older` does not have.
std::vector<ChunkSize> NewChunks(const v1::SnapshotManifest& newer,
                                 const v1::SnapshotManifest& older);

// Rank 0's side. `chunks` has all of `order`. `parcel_sent` is called after each parcel; an error
// that it returns ends the round.
absl::Status SendRound(Circle& circle, PolicyVersion version, const std::vector<ChunkSize>& order,
                       const ChunksByHash& chunks,
                       const std::function<absl::Status(uint64_t bytes)>& parcel_sent);

struct ReceivedRound {
  uint64_t bytes = 0;  // Sum over all parcels.
  size_t corrupt = 0;  // Missing chunks that came and did not match their hash.
};

// The side of the other ranks: gives `download` its missing chunks. After an error the chunks that
// were verified stay. kInvalidArgument: a chunk is too large, or the round has more than
// `bytes_max` bytes. `received` is set whatever the outcome.
absl::Status ReceiveRound(Circle& circle, uint64_t bytes_max, Download& download,
                          ReceivedRound& received);

}  // namespace oxbow::weights
