// SPDX-License-Identifier: Apache-2.0
// Makes the snapshots of a run one after another and hashes only what changed.
//
// The frozen part is cut and hashed once, and held only where its bytes are nowhere else. A chunk
// of the trained part that has the bytes of the last snapshot keeps its hash and its memory:
// comparing costs a tenth of hashing, and stops at the first difference. Tensors come one at a
// time, so that a snapshot takes the memory of its chunks and of one tensor. The chunks of a large
// tensor are hashed by several threads. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/weights/snapshot.h"

namespace oxbow::weights {

// Calls `use` once for each tensor, which may be gone when `use` returns.
using UseTensor = std::function<void(const std::string& name, const io::TensorBytes& tensor)>;
using TensorSource = std::function<void(const UseTensor& use)>;

TensorSource SourceOf(const TensorBytesByName& tensors);  // `tensors` outlive it.

// `frozen` and `trained` have no name in common. The caller fills in the probe.
Snapshot MakeSnapshot(SnapshotIdentity identity, const TensorBytesByName& frozen,
                      const TensorBytesByName& trained, uint64_t chunk_bytes = kSnapshotChunkBytes);

class SnapshotMaker {
 public:
  // Keeps the bytes of `frozen` as chunks, but for tensors that have a place with the same bytes.
  // `threads` hash. `place` may be null.
  explicit SnapshotMaker(const TensorSource& frozen, uint64_t chunk_bytes = kSnapshotChunkBytes,
                         int threads = HashThreads(), const PlaceOfTensor& place = nullptr);

  // The same as MakeSnapshot of both parts.
  Snapshot Make(SnapshotIdentity identity, const TensorSource& trained);

  // At most four, and half of the processors: sampling and training run beside it.
  static int HashThreads();

 private:
  using Entries = std::map<std::string, v1::TensorManifest>;

  struct Cut {
    std::string sha256;
    std::string xxh3;
    Chunk chunk;  // Null unless it is to be held.
  };
  v1::TensorManifest Add(const std::string& name, const io::TensorBytes& tensor,
                         ChunksByHash& chunks) const;
  v1::TensorManifest AddPlaced(const std::string& name, const io::TensorBytes& tensor,
                               const std::shared_ptr<const TensorPlace>& place,
                               PlacedChunks& chunks) const;
  // `before`: the same tensor of the last snapshot, or null.
  Cut CutOne(const v1::TensorManifest* before, int index, std::string_view piece, bool held) const;
  std::vector<Cut> CutAll(const v1::TensorManifest* before, std::string_view bytes,
                          bool held = true) const;

  const uint64_t chunk_bytes_;
  const int threads_;
  Entries frozen_;
  ChunksByHash frozen_chunks_;
  std::shared_ptr<const PlacedChunks> placed_;
  Entries before_;  // The trained part of the last snapshot.
  ChunksByHash before_chunks_;
};

}  // namespace oxbow::weights
