// SPDX-License-Identifier: Apache-2.0
// The state of fetching contents by hash, such as a manifest's chunks: the verified ones, the list
// of missing ones, and the part of the first missing one that has come.
//
// Not thread-safe. No RPC: the caller brings the pieces from any source.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/chunk_store.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

// How arriving chunks are checked. Both find damage; only SHA-256 also finds what a peer forged, at
// about ten times the cost (docs/decisions/0023-forged-chunks.md).
enum class ChunkCheck { kXxh3, kSha256 };

class Download {
 public:
  // Requires CheckManifest. Chunks that `store` has are not asked for; the others are expected
  // there and put as they are verified. kResourceExhausted if they exceed its budget.
  static absl::StatusOr<Download> Start(const v1::SnapshotManifest& manifest, ChunkStore& store,
                                        ChunkCheck check = ChunkCheck::kXxh3);

  // Contents that are checked by SHA-256 and put in `store` as they are verified. Requires bytes in
  // each.
  static Download Of(const std::vector<ChunkSize>& contents, ContentStore& store);

  bool complete() const { return lacking_.empty(); }
  size_t lacking() const { return lacking_.size(); }
  size_t progress() const { return verified_.size() + placed_.size(); }
  uint64_t bytes() const { return bytes_; }                   // Received, whether verified or not.
  const ChunksByHash& verified() const { return verified_; }  // Those in memory,
  const PlacedByHash& placed() const { return placed_; }      // and those elsewhere.

  // A request for the missing chunks, the first one from where it broke off. The caller fills in
  // epoch and worker.
  v1::FetchRequest Request() const;

  // Takes the next message and moves its data out of it. kDataLoss: a chunk that it completes does
  // not match its checksum; that chunk goes to the end of the list. kInvalidArgument: a piece was
  // not asked for. What comes behind a failure is not taken.
  absl::Status Take(v1::FetchResponse& message);

  // Takes a whole chunk that was not asked for, one of Lacking(). kDataLoss: it does not match its
  // checksum and stays missing. Lacking() and Request() change with Settle only. For chunks of a
  // manifest, as pool() is.
  absl::Status Offer(const std::string& sha256, std::string bytes);
  // The same for a chunk that stays where it is.
  absl::Status Offer(const std::string& sha256, const Placed& placed);
  std::set<std::string> Lacking() const;  // Hashes.
  void Settle();
  ChunkPool& pool() { return store_->pool(); }

  // The next source starts the first chunk from its beginning, so that a wrong hash is the fault of
  // one source.
  void ForgetPartial() { partial_.clear(); }

 private:
  Download(ChunkStore* store, ContentStore* contents, ChunkCheck check)
      : store_(store), contents_(contents), check_(check) {}

  absl::Status TakePiece(const std::string& sha256, uint64_t offset, std::string& data);
  bool Fits(const std::string& bytes, const std::string& sha256, const std::string& xxh3) const;
  void Keep(const std::string& sha256, std::string verified);

  ChunkStore* store_;  // One of the two is null.
  ContentStore* contents_;
  ChunkCheck check_;
  ChunksByHash verified_;
  PlacedByHash placed_;
  std::deque<ChunkSize> lacking_;
  std::map<std::string, std::string> checksums_;  // Those missing at first: SHA-256 to checksum.
  std::string partial_;                           // Part of lacking_.front().
  uint64_t bytes_ = 0;
};

}  // namespace oxbow::weights
