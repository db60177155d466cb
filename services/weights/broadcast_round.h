// SPDX-License-Identifier: Apache-2.0
// A round: the new chunks of one snapshot, sent to all members of a broadcast group at once.
//
//   rank 0:   Tell(BroadcastRound: version, chunks)  [piece]* Barrier
//   others:   Tell                                [piece]* Barrier
//
// A piece is one large chunk, or consecutive small ones. Both sides cut the same list in the same
// way, so pieces need no names. Two are under way at any time: while one is received, a member
// hashes the chunks of the other. Besides the chunks that are kept, a round needs memory for these
// two pieces only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "services/weights/broadcast_group.h"
#include "services/weights/download.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

inline constexpr uint64_t kPieceBytes = 1 << 20;

// chunks[first .. first + count).
struct Piece {
  size_t first = 0;
  size_t count = 0;
  uint64_t bytes = 0;
};

// Cuts all chunks, in order, into pieces of at most `bytes_max` bytes or of one chunk.
std::vector<Piece> PackPieces(const std::vector<ChunkSize>& chunks,
                              uint64_t bytes_max = kPieceBytes);

// The chunks of `newer`, in order, that `older` does not have.
std::vector<ChunkSize> NewChunks(const v1::SnapshotManifest& newer,
                                 const v1::SnapshotManifest& older);

// Rank 0's side. `chunks` has all of `order`. `piece_sent` is called after each piece; an error
// that it returns ends the round.
absl::Status SendRound(BroadcastGroup& broadcast_group, PolicyVersion version,
                       const std::vector<ChunkSize>& order, const ChunksByHash& chunks,
                       const std::function<absl::Status(uint64_t bytes)>& piece_sent);

struct ReceivedRound {
  uint64_t bytes = 0;  // Sum over all pieces.
  size_t corrupt = 0;  // Missing chunks that came and did not match their hash.
};

// The side of the other ranks: gives `download` its missing chunks. After an error the chunks that
// were verified stay. kInvalidArgument: a chunk is too large, or the round has more than
// `bytes_max` bytes. `received` is set whatever the outcome.
absl::Status ReceiveRound(BroadcastGroup& broadcast_group, uint64_t bytes_max, Download& download,
                          ReceivedRound& received);

}  // namespace oxbow::weights
