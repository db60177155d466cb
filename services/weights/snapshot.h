// SPDX-License-Identifier: Apache-2.0
// Published weights: a manifest that names every tensor, and its chunks by content hash.
//
// Two snapshots that share bytes share chunks, so a worker that follows an adapter's updates never
// fetches the base again. One hash covers the whole manifest, one the frozen part. The learner
// names chunks by SHA-256. A receiver checks them with it, or in plaintext with XXH3-128 at a
// fraction of the cost (download.h). No torch, no RPC.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "io/tensor_bytes.h"
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/tensor_place.h"

namespace oxbow::weights {

inline constexpr uint64_t kSnapshotChunkBytes = 1 << 20;
inline constexpr uint64_t kSnapshotChunkBytesMax = 4 << 20;

// Prefix of the tensor names of an autoencoder's decoder, which belongs to the frozen part.
inline constexpr char kDecoderPrefix[] = "vae.";

// Shared: snapshots with equal bytes hold one copy.
using Chunk = std::shared_ptr<const std::string>;
using ChunksByHash = std::map<std::string, Chunk>;  // Key: 32 raw bytes of SHA-256.

using TensorBytesByName = std::map<std::string, io::TensorBytes>;

struct Snapshot {
  v1::SnapshotManifest manifest;
  ChunksByHash chunks;
  // The other chunks of the frozen part; null: none.
  std::shared_ptr<const PlacedChunks> placed = nullptr;
};

struct SnapshotIdentity {
  Epoch epoch;
  PolicyVersion version;
  LearnerStep step;
};

// SHA-256 over names, dtypes, shapes and both chunk hashes of the tensors that `include` selects,
// in order.
std::string HashTensors(const v1::SnapshotManifest& manifest,
                        const std::function<bool(const std::string& name)>& include);

// Checks a manifest from the wire before anything is fetched for it: its own hash, names, shapes,
// number of chunks. kDataLoss for a wrong hash, kInvalidArgument otherwise. Declared bytes are at
// most `bytes_max`.
absl::Status CheckManifest(const v1::SnapshotManifest& manifest, uint64_t bytes_max);

// Each distinct chunk of a checked manifest with its size, in the order of first use.
struct ChunkSize {
  std::string sha256;
  uint64_t bytes = 0;
  std::string xxh3;
};
std::vector<ChunkSize> ChunksOf(const v1::SnapshotManifest& manifest);

// Puts one tensor, or all of them, together from verified chunks. Requires CheckManifest and every
// chunk. One tensor at a time needs the memory of one.
io::TensorBytes AssembleTensor(const v1::TensorManifest& entry, const ChunksByHash& chunks);
TensorBytesByName AssembleTensors(const v1::SnapshotManifest& manifest, const ChunksByHash& chunks);

}  // namespace oxbow::weights
