// SPDX-License-Identifier: Apache-2.0
#include "services/weights/snapshot_maker.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/machine_share.h"
#include "base/sha256.h"
#include "rpc/convert.h"

namespace oxbow::weights {
namespace {

v1::TensorManifest EntryOf(const std::string& name, const io::TensorBytes& tensor) {
  v1::TensorManifest entry;
  entry.set_name(name);
  entry.set_dtype(rpc::ToProto(tensor.dtype));
  entry.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  return entry;
}

// Whether `place` has these bytes.
bool Has(const TensorPlace& place, std::string_view bytes) {
  if (place.size() != bytes.size()) return false;
  std::string there;
  for (uint64_t begin = 0; begin < bytes.size(); begin += kSnapshotChunkBytes) {
    const std::string_view part = bytes.substr(begin, kSnapshotChunkBytes);
    there.resize(part.size());
    if (!place.Read(begin, there).ok() || there != part) return false;
  }
  return true;
}

}  // namespace

TensorSource SourceOf(const TensorBytesByName& tensors) {
  return [&tensors](const UseTensor& use) {
    for (const auto& [name, tensor] : tensors) use(name, tensor);
  };
}

int SnapshotMaker::HashThreads() { return std::clamp(UsableThreads() / 2, 1, 4); }

SnapshotMaker::SnapshotMaker(const TensorSource& frozen, uint64_t chunk_bytes, int threads,
                             const PlaceOfTensor& place)
    : chunk_bytes_(chunk_bytes), threads_(threads) {
  OXBOW_CHECK(chunk_bytes > 0 && chunk_bytes <= kSnapshotChunkBytesMax)
      << "chunk size " << chunk_bytes;
  auto placed = std::make_shared<PlacedChunks>();
  frozen([&](const std::string& name, const io::TensorBytes& tensor) {
    const auto there = place ? place(name) : nullptr;
    const bool same = there != nullptr && Has(*there, tensor.data);
    frozen_[name] =
        same ? AddPlaced(name, tensor, there, *placed) : Add(name, tensor, frozen_chunks_);
  });
  if (!placed->empty()) placed_ = std::move(placed);
}

SnapshotMaker::Cut SnapshotMaker::CutOne(const v1::TensorManifest* before, int index,
                                         std::string_view piece, bool held) const {
  if (before != nullptr && index < before->chunk_sha256_size()) {
    const std::string& hash = before->chunk_sha256(index);
    const Chunk& same = before_chunks_.at(hash);
    if (*same == piece) return {.sha256 = hash, .xxh3 = before->chunk_xxh3(index), .chunk = same};
  }
  return {.sha256 = Sha256(piece),
          .xxh3 = Checksum128(piece),
          .chunk = held ? std::make_shared<const std::string>(piece) : nullptr};
}

std::vector<SnapshotMaker::Cut> SnapshotMaker::CutAll(const v1::TensorManifest* before,
                                                      std::string_view bytes, bool held) const {
  std::vector<std::string_view> pieces;
  rpc::ForEachChunk(bytes, chunk_bytes_, [&](uint64_t, std::string_view piece) {
    pieces.push_back(piece);
    return true;
  });
  std::vector<Cut> cuts(pieces.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < pieces.size(); i = next++) {
      cuts[i] = CutOne(before, static_cast<int>(i), pieces[i], held);
    }
  };
  // A thread costs less than the hash of one chunk.
  std::vector<std::jthread> others;
  for (size_t t = 1; t < std::min<size_t>(threads_, pieces.size()); ++t) others.emplace_back(work);
  work();
  others.clear();  // Joins.
  return cuts;
}

v1::TensorManifest SnapshotMaker::Add(const std::string& name, const io::TensorBytes& tensor,
                                      ChunksByHash& chunks) const {
  v1::TensorManifest entry = EntryOf(name, tensor);
  const auto before = before_.find(name);
  for (Cut& cut : CutAll(before == before_.end() ? nullptr : &before->second, tensor.data)) {
    entry.add_chunk_sha256(cut.sha256);
    entry.add_chunk_xxh3(std::move(cut.xxh3));
    chunks.emplace(std::move(cut.sha256), std::move(cut.chunk));  // Equal bytes: one memory.
  }
  return entry;
}

v1::TensorManifest SnapshotMaker::AddPlaced(const std::string& name, const io::TensorBytes& tensor,
                                            const std::shared_ptr<const TensorPlace>& place,
                                            PlacedChunks& chunks) const {
  v1::TensorManifest entry = EntryOf(name, tensor);
  uint64_t begin = 0;
  for (Cut& cut : CutAll(/*before=*/nullptr, tensor.data, /*held=*/false)) {
    const uint64_t bytes = std::min<uint64_t>(chunk_bytes_, tensor.data.size() - begin);
    entry.add_chunk_sha256(cut.sha256);
    entry.add_chunk_xxh3(cut.xxh3);
    chunks.emplace(std::move(cut.sha256), PlacedChunk{place, begin, bytes, std::move(cut.xxh3)});
    begin += bytes;
  }
  return entry;
}

Snapshot SnapshotMaker::Make(SnapshotIdentity identity, const TensorSource& trained) {
  ChunksByHash chunks;
  Entries entries;
  trained([&](const std::string& name, const io::TensorBytes& tensor) {
    OXBOW_CHECK(!frozen_.contains(name)) << "a tensor is frozen and trained: " << name;
    entries[name] = Add(name, tensor, chunks);
  });
  before_ = entries;
  before_chunks_ = chunks;
  entries.insert(frozen_.begin(), frozen_.end());
  chunks.insert(frozen_chunks_.begin(), frozen_chunks_.end());

  Snapshot snapshot{.manifest = {}, .chunks = std::move(chunks), .placed = placed_};
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
  return SnapshotMaker(SourceOf(frozen), chunk_bytes).Make(identity, SourceOf(trained));
}

}  // namespace oxbow::weights
