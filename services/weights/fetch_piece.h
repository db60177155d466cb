// SPDX-License-Identifier: Apache-2.0
// A FetchResponse whose `data` is sent without a copy (rpc/slices.h); small chunks are copied.
//
// With several children per relay, copying the data into serialised messages would cost as much as
// all other work.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "oxbow/v1/weight_channel.pb.h"
#include "rpc/slices.h"
#include "rpc/stream.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

struct FetchPiece {
  std::string sha256;
  uint64_t offset = 0;
  Chunk chunk;                                       // Null: only small chunks, or a keep-alive.
  uint64_t bytes = 0;                                // From `offset`.
  std::vector<std::pair<std::string, Chunk>> small;  // Whole chunks by their SHA-256.

  std::vector<grpc::Slice> Slices() const;
};

// The server's side of Fetch, with pieces instead of messages.
using FetchStream = rpc::Stream<v1::FetchRequest, FetchPiece>;

// How a chunk is sent: in pieces of at most `bytes_max`, each between two calls with its bytes.
struct PieceRule {
  uint64_t bytes_max = kSnapshotChunkBytes;
  std::function<void(uint64_t)> before = nullptr;  // May wait.
  std::function<void(uint64_t)> after = nullptr;
};

// Sends the chunks of one call in their order. Small ones wait for each other and travel together:
// a message costs tens of microseconds on each side, and a network has hundreds of small tensors.
class ChunkSender {
 public:
  explicit ChunkSender(FetchStream& stream) : stream_(stream) {}

  // Sends `chunk` from `offset` on, or keeps it for the next message. kCancelled when the peer is
  // gone. The arguments outlive it, and `rule` the sender.
  rpc::Part Send(const std::string& sha256, const Chunk& chunk, uint64_t offset,
                 const PieceRule& rule);

  // Sends what was kept: before the call ends, in whatever way, and before every wait.
  rpc::Part Flush();

 private:
  FetchStream& stream_;
  FetchPiece kept_;                                           // Its small chunks.
  std::vector<std::pair<const PieceRule*, uint64_t>> rules_;  // Theirs, with their bytes.
};

// The index of Fetch in service WeightChannel.
inline constexpr int kFetchMethod = 1;

}  // namespace oxbow::weights
