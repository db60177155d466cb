// The chunks of one manifest on their way: verified ones, the list still
// lacking, and the part of the first lacking one that has come.
//
// Not thread-safe. No RPC: pieces come from wherever the caller found them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/chunk_store.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

class Download {
 public:
  // Requires CheckManifest. What `store` has is not asked for; the others are
  // expected there and put as they are verified. kResourceExhausted if they
  // exceed its budget.
  static absl::StatusOr<Download> Start(const v1::SnapshotManifest& manifest, ChunkStore& store);

  bool complete() const { return lacking_.empty(); }
  size_t lacking() const { return lacking_.size(); }
  size_t progress() const { return verified_.size(); }
  uint64_t bytes() const { return bytes_; }  // Received, whether verified or not.
  const ChunksByHash& verified() const { return verified_; }

  // Asks for what lacks, from where the first one broke off. Epoch and worker
  // are the caller's to fill.
  v1::FetchRequest Request() const;

  // Takes the next piece, and its data out of it. kDataLoss: the chunk it completed does
  // not match its checksum; it goes to the end of the list. kInvalidArgument: a
  // piece nobody asked for.
  absl::Status Take(v1::FetchResponse& piece);

  // A whole chunk that came unasked, one of Lacking(). kDataLoss: it does not match its checksum,
  // and goes on lacking. What Lacking() and Request() say changes with Settle.
  absl::Status Offer(const std::string& sha256, std::string bytes);
  std::set<std::string> Lacking() const;  // Hashes.
  void Settle();
  ChunkPool& pool() { return store_->pool(); }

  // The next source starts the first chunk anew: a wrong hash is then one
  // source's fault.
  void ForgetPartial() { partial_.clear(); }

 private:
  explicit Download(ChunkStore& store) : store_(&store) {}
  void Keep(const std::string& sha256, std::string verified);

  ChunkStore* store_;
  ChunksByHash verified_;
  std::deque<ChunkSize> lacking_;
  std::map<std::string, std::string> checksums_;  // Of what lacked, by SHA-256.
  std::string partial_;                           // Of lacking_.front().
  uint64_t bytes_ = 0;
};

}  // namespace oxbow::weights
