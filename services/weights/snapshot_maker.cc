// SPDX-License-Identifier: Apache-2.0
#include "services/weights/snapshot_maker.h"

#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/sha256.h"
#include "rpc/convert.h"

namespace oxbow::weights {

SnapshotMaker::SnapshotMaker(const TensorBytesByName& frozen, uint64_t chunk_bytes)
    : chunk_bytes_(chunk_bytes) {
  OXBOW_CHECK(chunk_bytes > 0 && chunk_bytes <= kSnapshotChunkBytesMax)
      << "chunk size " << chunk_bytes;
  for (const auto& [name, tensor] : frozen) frozen_[name] = Cut(name, tensor, frozen_chunks_);
}

v1::TensorManifest SnapshotMaker::Cut(const std::string& name, const io::TensorBytes& tensor,
                                      ChunksByHash& chunks) const {
  v1::TensorManifest entry;
  entry.set_name(name);
  entry.set_dtype(rpc::ToProto(tensor.dtype));
  entry.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  const auto before = before_.find(name);
  rpc::ForEachChunk(tensor.data, chunk_bytes_, [&](uint64_t offset, std::string_view piece) {
    const auto index = static_cast<int>(offset / chunk_bytes_);
    if (before != before_.end() && index < before->second.chunk_sha256_size()) {
      const std::string& hash = before->second.chunk_sha256(index);
      const Chunk& same = before_chunks_.at(hash);
      if (*same == piece) {
        entry.add_chunk_sha256(hash);
        entry.add_chunk_xxh3(before->second.chunk_xxh3(index));
        chunks.emplace(hash, same);
        return true;
      }
    }
    std::string hash = Sha256(piece);
    entry.add_chunk_sha256(hash);
    entry.add_chunk_xxh3(Checksum128(piece));
    Chunk& chunk = chunks[std::move(hash)];
    if (chunk == nullptr) chunk = std::make_shared<const std::string>(piece);
    return true;
  });
  return entry;
}

Snapshot SnapshotMaker::Make(SnapshotIdentity identity, const TensorBytesByName& trained) {
  ChunksByHash chunks;
  Entries entries;
  for (const auto& [name, tensor] : trained) {
    OXBOW_CHECK(!frozen_.contains(name)) << "a tensor is frozen and trained: " << name;
    entries[name] = Cut(name, tensor, chunks);
  }
  before_ = entries;
  before_chunks_ = chunks;
  entries.insert(frozen_.begin(), frozen_.end());
  chunks.insert(frozen_chunks_.begin(), frozen_chunks_.end());

  Snapshot snapshot{.manifest = {}, .chunks = std::move(chunks)};
  v1::SnapshotManifest& manifest = snapshot.manifest;
  manifest.set_epoch(identity.epoch.value);
  manifest.set_policy_version(identity.version.value);
  manifest.set_learner_step(identity.step.value);
  manifest.set_chunk_bytes(chunk_bytes_);
  for (auto& [name, entry] : entries) *manifest.add_tensors() = std::move(entry);
  manifest.set_sha256(HashTensors(manifest, [](const std::string&) { return true; }));
  manifest.set_base_sha256(
      HashTensors(manifest, [&](const std::string& name) { return frozen_.contains(name); }));
  return snapshot;
}

Snapshot MakeSnapshot(SnapshotIdentity identity, const TensorBytesByName& frozen,
                      const TensorBytesByName& trained, uint64_t chunk_bytes) {
  return SnapshotMaker(frozen, chunk_bytes).Make(identity, trained);
}

}  // namespace oxbow::weights
