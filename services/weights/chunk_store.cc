// SPDX-License-Identifier: Apache-2.0
#include "services/weights/chunk_store.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::weights {
namespace {

constexpr uint64_t kKeptBytesMin = 64 << 10;  // Less comes from the heap without new pages.

}  // namespace

std::string ChunkPool::Take(uint64_t bytes) {
  std::string memory;
  {
    absl::MutexLock lock(&shelf_->mutex);
    // Memory that is much too large stays for a large chunk.
    if (!shelf_->free.empty() && shelf_->free.back().capacity() <= 2 * bytes) {
      memory = std::move(shelf_->free.back());
      shelf_->free.pop_back();
      shelf_->free_bytes -= memory.capacity();
    }
  }
  memory.reserve(bytes);
  return memory;
}

Chunk ChunkPool::Seal(std::string bytes) {
  const uint64_t capacity = bytes.capacity();
  {
    absl::MutexLock lock(&shelf_->mutex);
    shelf_->used_bytes += capacity;
  }
  return {new std::string(std::move(bytes)), [shelf = shelf_, capacity](const std::string* chunk) {
            // Not const when it was made.
            const std::unique_ptr<std::string> memory(const_cast<std::string*>(chunk));
            absl::MutexLock lock(&shelf->mutex);
            shelf->used_bytes -= capacity;
            if (capacity < kKeptBytesMin || shelf->free_bytes + capacity > shelf->used_bytes)
              return;
            memory->clear();
            shelf->free_bytes += capacity;
            shelf->free.push_back(std::move(*memory));
          }};
}

uint64_t ChunkPool::bytes_kept() const {
  absl::MutexLock lock(&shelf_->mutex);
  return shelf_->free_bytes;
}

ChunkStore::ChunkStore(size_t snapshots_max, uint64_t bytes_max)
    : snapshots_max_(snapshots_max), bytes_max_(bytes_max) {
  OXBOW_CHECK(snapshots_max >= 1) << "a store must hold the newest snapshot";
}

absl::Status ChunkStore::CheckBudget(uint64_t bytes) const {
  if (bytes <= bytes_max_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("snapshot exceeds the weight budget: ", bytes, " bytes, limit ", bytes_max_));
}

absl::Status ChunkStore::Add(const Snapshot& snapshot, uint64_t* new_bytes) {
  std::vector<ChunkSize> sizes;
  uint64_t bytes = 0;
  for (const auto& [hash, chunk] : snapshot.chunks) {
    sizes.push_back({hash, chunk->size()});
    bytes += chunk->size();
  }
  OXBOW_RETURN_IF_ERROR(CheckBudget(bytes));
  static const PlacedChunks kNone;
  const PlacedChunks& placed = snapshot.placed == nullptr ? kNone : *snapshot.placed;
  absl::MutexLock lock(&mutex_);
  uint64_t fresh = 0;
  for (const ChunkSize& chunk : sizes) fresh += chunks_.contains(chunk.sha256) ? 0 : chunk.bytes;
  for (const auto& [hash, chunk] : placed) {
    if (snapshot.chunks.contains(hash)) continue;
    fresh += chunks_.contains(hash) ? 0 : chunk.bytes;
    sizes.push_back({hash, 0});
  }
  if (new_bytes != nullptr) *new_bytes = fresh;
  MakeNewest(sizes);
  for (const auto& [hash, chunk] : snapshot.chunks) {
    Held& held = chunks_.at(hash);
    if (held.chunk == nullptr) held.chunk = chunk;
  }
  for (const auto& [hash, chunk] : placed) {
    Held& held = chunks_.at(hash);
    std::tie(held.placed, held.owner) = std::pair(&chunk, snapshot.placed);
  }
  return absl::OkStatus();
}

absl::Status ChunkStore::Expect(const std::vector<ChunkSize>& chunks) {
  uint64_t bytes = 0;
  for (const ChunkSize& chunk : chunks) bytes += chunk.bytes;
  OXBOW_RETURN_IF_ERROR(CheckBudget(bytes));
  absl::MutexLock lock(&mutex_);
  MakeNewest(chunks);
  return absl::OkStatus();
}

void ChunkStore::MakeNewest(const std::vector<ChunkSize>& chunks) {
  std::vector<std::string> hashes;
  for (const ChunkSize& chunk : chunks) {
    Held& held = chunks_[chunk.sha256];
    ++held.uses;
    // Not at its first use alone: what an older snapshot had placed may be held from now on.
    if (held.bytes == 0) {
      held.bytes = chunk.bytes;
      bytes_ += chunk.bytes;
    }
    hashes.push_back(chunk.sha256);
  }
  snapshots_.push_back(std::move(hashes));
  while (snapshots_.size() > 1 && (snapshots_.size() > snapshots_max_ || bytes_ > bytes_max_)) {
    DropOldest();
  }
}

void ChunkStore::DropOldest() {
  for (const std::string& hash : snapshots_.front()) {
    const auto held = chunks_.find(hash);
    if (--held->second.uses > 0) continue;
    bytes_ -= held->second.bytes;
    chunks_.erase(held);
  }
  snapshots_.pop_front();
}

void ChunkStore::Put(const std::string& sha256, Chunk chunk) {
  absl::MutexLock lock(&mutex_);
  const auto held = chunks_.find(sha256);
  if (held == chunks_.end()) return;
  held->second.chunk = std::move(chunk);
  for (const Listener* listener : listeners_) listener->put_();
}

Chunk ChunkStore::FindLocked(const std::string& sha256) const {
  const auto held = chunks_.find(sha256);
  return held == chunks_.end() ? nullptr : held->second.chunk;
}

Chunk ChunkStore::Find(const std::string& sha256) const {
  absl::MutexLock lock(&mutex_);
  return FindLocked(sha256);
}

absl::StatusOr<Chunk> ChunkStore::Read(const std::string& sha256) const {
  Held held;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = chunks_.find(sha256);
    if (found != chunks_.end()) held = found->second;
  }
  if (held.chunk != nullptr || held.placed == nullptr) return held.chunk;
  return held.placed->Read();
}

ChunkStore::Listener::Listener(ChunkStore& store, std::function<void()> put)
    : store_(store), put_(std::move(put)) {
  absl::MutexLock lock(&store_.mutex_);
  store_.listeners_.insert(this);
}

ChunkStore::Listener::~Listener() {
  absl::MutexLock lock(&store_.mutex_);
  store_.listeners_.erase(this);
}

bool ChunkStore::Wants(const std::string& sha256) const {
  absl::MutexLock lock(&mutex_);
  return chunks_.contains(sha256);
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
