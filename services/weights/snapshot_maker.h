// SPDX-License-Identifier: Apache-2.0
// Makes the snapshots of a run one after another and hashes only what changed.
//
// The frozen part is cut and hashed once. A chunk of the trained part that has the bytes of the
// last snapshot keeps its hash and its memory: comparing costs a tenth of hashing, and stops at the
// first difference. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "services/weights/snapshot.h"

namespace oxbow::weights {

// `frozen` and `trained` have no name in common. The caller fills in the probe.
Snapshot MakeSnapshot(SnapshotIdentity identity, const TensorBytesByName& frozen,
                      const TensorBytesByName& trained, uint64_t chunk_bytes = kSnapshotChunkBytes);

class SnapshotMaker {
 public:
  // Keeps the bytes of `frozen` as chunks.
  explicit SnapshotMaker(const TensorBytesByName& frozen,
                         uint64_t chunk_bytes = kSnapshotChunkBytes);

  // The same as MakeSnapshot of both parts.
  Snapshot Make(SnapshotIdentity identity, const TensorBytesByName& trained);

 private:
  using Entries = std::map<std::string, v1::TensorManifest>;

  v1::TensorManifest Cut(const std::string& name, const io::TensorBytes& tensor,
                         ChunksByHash& chunks) const;

  const uint64_t chunk_bytes_;
  Entries frozen_;
  ChunksByHash frozen_chunks_;
  Entries before_;  // The trained part of the last snapshot.
  ChunksByHash before_chunks_;
};

}  // namespace oxbow::weights
