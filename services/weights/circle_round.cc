#include "services/weights/circle_round.h"

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

constexpr size_t kUnderWay = 2;  // Parcels at a time.

// A parcel and its memory.
struct Shipment {
  Parcel parcel;
  std::shared_ptr<std::string> bytes;  // Null: rank 0 sends a chunk from where it is.
  std::unique_ptr<Circle::Transit> transit;
};

Shipment Load(Circle& circle, const Parcel& parcel, const std::vector<ChunkSize>& order,
              const ChunksByHash& chunks) {
  if (parcel.count == 1) {
    const Chunk& chunk = chunks.at(order[parcel.first].sha256);
    // It is only read.
    return {parcel, nullptr,
            circle.Start({const_cast<char*>(chunk->data()), chunk->size()}, chunk)};
  }
  auto bytes = std::make_shared<std::string>();
  bytes->reserve(parcel.bytes);
  for (size_t i = 0; i < parcel.count; ++i) {
    bytes->append(*chunks.at(order[parcel.first + i].sha256));
  }
  OXBOW_CHECK(bytes->size() == parcel.bytes) << "chunks of other sizes than their manifest's";
  auto transit = circle.Start({bytes->data(), bytes->size()}, bytes);
  return {parcel, std::move(bytes), std::move(transit)};
}

absl::StatusOr<std::vector<ChunkSize>> ChunksOfRound(const v1::CircleRound& round,
                                                     uint64_t bytes_max) {
  std::vector<ChunkSize> chunks;
  uint64_t total = 0;
  for (const v1::CircleRound::Chunk& chunk : round.chunks()) {
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
    received_.bytes += shipment.parcel.bytes;
    const ChunkSize* chunk = &order_[shipment.parcel.first];
    if (shipment.parcel.count == 1) return Offer(chunk->sha256, std::move(*shipment.bytes));
    uint64_t offset = 0;
    for (size_t i = 0; i < shipment.parcel.count; offset += chunk->bytes, ++chunk, ++i) {
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

std::vector<Parcel> PackParcels(const std::vector<ChunkSize>& chunks, uint64_t bytes_max) {
  std::vector<Parcel> parcels;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (parcels.empty() || parcels.back().bytes + chunks[i].bytes > bytes_max) {
      parcels.push_back({.first = i});
    }
    ++parcels.back().count;
    parcels.back().bytes += chunks[i].bytes;
  }
  return parcels;
}

std::vector<ChunkSize> NewChunks(const v1::SnapshotManifest& newer,
                                 const v1::SnapshotManifest& older) {
  std::set<std::string> known;
  for (ChunkSize& chunk : ChunksOf(older)) known.insert(std::move(chunk.sha256));
  std::vector<ChunkSize> chunks = ChunksOf(newer);
  std::erase_if(chunks, [&](const ChunkSize& chunk) { return known.contains(chunk.sha256); });
  return chunks;
}

absl::Status SendRound(Circle& circle, PolicyVersion version, const std::vector<ChunkSize>& order,
                       const ChunksByHash& chunks,
                       const std::function<absl::Status(uint64_t bytes)>& parcel_sent) {
  v1::CircleRound round;
  round.set_policy_version(version.value);
  for (const ChunkSize& chunk : order) {
    v1::CircleRound::Chunk& entry = *round.add_chunks();
    entry.set_sha256(chunk.sha256);
    entry.set_bytes(chunk.bytes);
  }
  std::string text = round.SerializeAsString();
  OXBOW_RETURN_IF_ERROR(circle.Tell(text));
  std::deque<Shipment> under_way;
  const auto finish_first = [&]() -> absl::Status {
    OXBOW_RETURN_IF_ERROR(under_way.front().transit->Wait());
    const uint64_t bytes = under_way.front().parcel.bytes;
    under_way.pop_front();
    return parcel_sent(bytes);
  };
  for (const Parcel& parcel : PackParcels(order)) {
    if (under_way.size() == kUnderWay) OXBOW_RETURN_IF_ERROR(finish_first());
    under_way.push_back(Load(circle, parcel, order, chunks));
  }
  while (!under_way.empty()) OXBOW_RETURN_IF_ERROR(finish_first());
  return circle.Meet();
}

absl::Status ReceiveRound(Circle& circle, uint64_t bytes_max, Download& download,
                          ReceivedRound& received) {
  std::string text;
  OXBOW_RETURN_IF_ERROR(circle.Tell(text));
  v1::CircleRound round;
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
  for (const Parcel& parcel : PackParcels(order)) {
    auto bytes = std::make_shared<std::string>(download.pool().Take(parcel.bytes));
    bytes->resize(parcel.bytes);
    auto transit = circle.Start({bytes->data(), bytes->size()}, bytes);
    under_way.push_back({parcel, std::move(bytes), std::move(transit)});
    if (under_way.size() == kUnderWay) OXBOW_RETURN_IF_ERROR(finish_first());
  }
  while (!under_way.empty()) OXBOW_RETURN_IF_ERROR(finish_first());
  return circle.Meet();
}

}  // namespace oxbow::weights
