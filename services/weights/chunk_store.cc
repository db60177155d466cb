#include "services/weights/chunk_store.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::weights {

ChunkStore::ChunkStore(size_t snapshots_max, uint64_t bytes_max)
    : snapshots_max_(snapshots_max), bytes_max_(bytes_max) {
  OXBOW_CHECK(snapshots_max >= 1) << "a store must hold the newest snapshot";
}

absl::Status ChunkStore::Add(const Snapshot& snapshot) {
  uint64_t bytes = 0;
  for (const auto& [hash, chunk] : snapshot.chunks) bytes += chunk->size();
  if (bytes > bytes_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("snapshot exceeds the weight budget: ", bytes, " bytes, limit ", bytes_max_));
  }
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> hashes;
  for (auto& [hash, chunk] : snapshot.chunks) {
    Held& held = chunks_[hash];
    if (held.uses++ == 0) {
      bytes_ += chunk->size();
      held.chunk = chunk;
    }
    hashes.push_back(hash);
  }
  snapshots_.push_back(std::move(hashes));
  while (snapshots_.size() > 1 && (snapshots_.size() > snapshots_max_ || bytes_ > bytes_max_)) {
    DropOldest();
  }
  return absl::OkStatus();
}

void ChunkStore::DropOldest() {
  for (const std::string& hash : snapshots_.front()) {
    const auto held = chunks_.find(hash);
    if (--held->second.uses > 0) continue;
    bytes_ -= held->second.chunk->size();
    chunks_.erase(held);
  }
  snapshots_.pop_front();
}

Chunk ChunkStore::Find(const std::string& sha256) const {
  absl::MutexLock lock(&mutex_);
  const auto held = chunks_.find(sha256);
  return held == chunks_.end() ? nullptr : held->second.chunk;
}

uint64_t ChunkStore::bytes() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

size_t ChunkStore::snapshots() const {
  absl::MutexLock lock(&mutex_);
  return snapshots_.size();
}

}  // namespace oxbow::weights
