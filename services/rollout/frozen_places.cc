// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/frozen_places.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/memory_limits.h"

namespace oxbow::rollout {
namespace {

constexpr uint64_t kFreedAtOnce = 256 * kMebibyte;

}  // namespace

FrozenPlaces::FrozenPlaces(weights::VerifiedSnapshot& snapshot, PlaceChunk place)
    : snapshot_(snapshot), place_(std::move(place)) {
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
    entries_[entry.name()] = &entry;
  }
}

FrozenPlaces::~FrozenPlaces() {
  if (freed_ > 0) ReturnFreedMemory();
}

void FrozenPlaces::Add(const std::string& name, const at::Tensor& kept) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end() || !kept.is_cpu() || !kept.is_contiguous()) return;
  const auto memory =
      weights::PlaceInMemory({static_cast<const char*>(kept.const_data_ptr()), kept.nbytes()},
                             std::make_shared<const at::Tensor>(kept));
  uint64_t begin = 0;
  for (int i = 0; i < entry->second->chunk_sha256_size() && begin < memory->size(); ++i) {
    const std::string& hash = entry->second->chunk_sha256(i);
    const uint64_t bytes =
        std::min<uint64_t>(snapshot_.manifest.chunk_bytes(), memory->size() - begin);
    const auto placed = std::make_shared<const weights::PlacedChunk>(weights::PlacedChunk{
        memory, std::exchange(begin, begin + bytes), bytes, entry->second->chunk_xxh3(i)});
    if (!placed->Read().ok()) continue;  // Another type, or rounded.
    if (snapshot_.chunks.erase(hash) > 0) freed_ += bytes;
    snapshot_.placed[hash] = placed;
    if (place_) place_(hash, placed);
  }
  if (freed_ < kFreedAtOnce) return;
  ReturnFreedMemory();
  freed_ = 0;
}

}  // namespace oxbow::rollout
