// SPDX-License-Identifier: Apache-2.0
#include "services/weights/broadcast_round.h"

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::weights {
namespace {

constexpr size_t kUnderWay = 2;  // Pieces at a time.

// A piece and its memory.
struct Shipment {
  Piece piece;
  std::shared_ptr<std::string> bytes;  // Null: rank 0 sends a chunk from where it is.
  std::unique_ptr<BroadcastGroup::Transfer> transit;
};

Shipment Load(BroadcastGroup& broadcast_group, const Piece& piece,
              const std::vector<ChunkSize>& order, const ChunksByHash& chunks) {
  if (piece.count == 1) {
    const Chunk& chunk = chunks.at(order[piece.first].sha256);
    // It is only read.
    return {piece, nullptr,
            broadcast_group.Start({const_cast<char*>(chunk->data()), chunk->size()}, chunk)};
  }
  auto bytes = std::make_shared<std::string>();
  bytes->reserve(piece.bytes);
  for (size_t i = 0; i < piece.count; ++i) {
    bytes->append(*chunks.at(order[piece.first + i].sha256));
  }
  OXBOW_CHECK(bytes->size() == piece.bytes) << "chunks of other sizes than their manifest's";
  auto transit = broadcast_group.Start({bytes->data(), bytes->size()}, bytes);
  return {piece, std::move(bytes), std::move(transit)};
}

absl::StatusOr<std::vector<ChunkSize>> ChunksOfRound(const v1::BroadcastRound& round,
                                                     uint64_t bytes_max) {
  std::vector<ChunkSize> chunks;
  uint64_t total = 0;
  for (const v1::BroadcastRound::Chunk& chunk : round.chunks()) {
    total += chunk.bytes();
    if (chunk.bytes() == 0 || chunk.bytes() > kSnapshotChunkBytesMax || total > bytes_max) {
      return absl::InvalidArgumentError(
          absl::StrCat("round of chunks that are too large: ", chunk.bytes(), " of ", total));
    }
    chunks.push_back({chunk.sha256(), chunk.bytes()});
  }
  return chunks;
}

// Takes a member's chunks into its download.
class Unloading {
 public:
  Unloading(const std::vector<ChunkSize>& order, Download& download, ReceivedRound& received)
      : order_(order), download_(download), received_(received), lacking_(download.Lacking()) {}

  void Unload(const Shipment& shipment) {
    received_.bytes += shipment.piece.bytes;
    const ChunkSize* chunk = &order_[shipment.piece.first];
    if (shipment.piece.count == 1) return Offer(chunk->sha256, std::move(*shipment.bytes));
    uint64_t offset = 0;
    for (size_t i = 0; i < shipment.piece.count; offset += chunk->bytes, ++chunk, ++i) {
      Offer(chunk->sha256, shipment.bytes->substr(offset, chunk->bytes));
    }
  }

 private:
  void Offer(const std::string& sha256, std::string bytes) {
    if (lacking_.contains(sha256) && !download_.Offer(sha256, std::move(bytes)).ok()) {
      ++received_.corrupt;
    }
  }

  const std::vector<ChunkSize>& order_;
  Download& download_;
  ReceivedRound& received_;
  const std::set<std::string> lacking_;
};

}  // namespace

std::vector<Piece> PackPieces(const std::vector<ChunkSize>& chunks, uint64_t bytes_max) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (pieces.empty() || pieces.back().bytes + chunks[i].bytes > bytes_max) {
      pieces.push_back({.first = i});
    }
    ++pieces.back().count;
    pieces.back().bytes += chunks[i].bytes;
  }
  return pieces;
}

std::vector<ChunkSize> NewChunks(const v1::SnapshotManifest& newer,
                                 const v1::SnapshotManifest& older) {
  std::set<std::string> known;
  for (ChunkSize& chunk : ChunksOf(older)) known.insert(std::move(chunk.sha256));
  std::vector<ChunkSize> chunks = ChunksOf(newer);
  std::erase_if(chunks, [&](const ChunkSize& chunk) { return known.contains(chunk.sha256); });
  return chunks;
}

absl::Status SendRound(BroadcastGroup& broadcast_group, PolicyVersion version,
                       const std::vector<ChunkSize>& order, const ChunksByHash& chunks,
                       const std::function<absl::Status(uint64_t bytes)>& piece_sent) {
  v1::BroadcastRound round;
  round.set_policy_version(version.value);
  for (const ChunkSize& chunk : order) {
    v1::BroadcastRound::Chunk& entry = *round.add_chunks();
    entry.set_sha256(chunk.sha256);
    entry.set_bytes(chunk.bytes);
  }
  std::string text = round.SerializeAsString();
  OXBOW_RETURN_IF_ERROR(broadcast_group.Broadcast(text));
  std::deque<Shipment> under_way;
  const auto finish_first = [&]() -> absl::Status {
    OXBOW_RETURN_IF_ERROR(under_way.front().transit->Wait());
    const uint64_t bytes = under_way.front().piece.bytes;
    under_way.pop_front();
    return piece_sent(bytes);
  };
  for (const Piece& piece : PackPieces(order)) {
    if (under_way.size() == kUnderWay) OXBOW_RETURN_IF_ERROR(finish_first());
    under_way.push_back(Load(broadcast_group, piece, order, chunks));
  }
  while (!under_way.empty()) OXBOW_RETURN_IF_ERROR(finish_first());
  return broadcast_group.Barrier();
}

absl::Status ReceiveRound(BroadcastGroup& broadcast_group, uint64_t bytes_max, Download& download,
                          ReceivedRound& received) {
  std::string text;
  OXBOW_RETURN_IF_ERROR(broadcast_group.Broadcast(text));
  v1::BroadcastRound round;
  if (!round.ParseFromString(text)) return absl::InvalidArgumentError("not a round");
  OXBOW_ASSIGN_OR_RETURN(const std::vector<ChunkSize> order, ChunksOfRound(round, bytes_max));
  Unloading unloading(order, download, received);
  std::deque<Shipment> under_way;
  const auto finish_first = [&]() -> absl::Status {
    OXBOW_RETURN_IF_ERROR(under_way.front().transit->Wait());
    unloading.Unload(under_way.front());
    under_way.pop_front();
    return absl::OkStatus();
  };
  for (const Piece& piece : PackPieces(order)) {
    auto bytes = std::make_shared<std::string>(download.pool().Take(piece.bytes));
    bytes->resize(piece.bytes);
    auto transit = broadcast_group.Start({bytes->data(), bytes->size()}, bytes);
    under_way.push_back({piece, std::move(bytes), std::move(transit)});
    if (under_way.size() == kUnderWay) OXBOW_RETURN_IF_ERROR(finish_first());
  }
  while (!under_way.empty()) OXBOW_RETURN_IF_ERROR(finish_first());
  return broadcast_group.Barrier();
}

}  // namespace oxbow::weights
