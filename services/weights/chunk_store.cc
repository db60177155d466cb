// SPDX-License-Identifier: Apache-2.0
#include "services/weights/chunk_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::weights {
namespace {

constexpr uint64_t kKeptBytesMin = 64 << 10;  // Less comes from the heap without new pages.

}  // namespace

Chunk ContentStore::Put(const std::string& sha256, Chunk content) {
  absl::MutexLock lock(&mutex_);
  if (entries_.size() >= forget_at_) ForgetGone();
  Entry& entry = entries_[sha256];
  if (Chunk here = entry.shared.lock(); here != nullptr) content = std::move(here);
  entry.shared = content;
  Keep(sha256, entry, content);
  return content;
}

Chunk ContentStore::Find(const std::string& sha256) {
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(sha256);
  if (found == entries_.end()) return nullptr;
  Chunk content = found->second.shared.lock();
  if (content != nullptr) Keep(sha256, found->second, content);
  return content;
}

uint64_t ContentStore::bytes() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

size_t ContentStore::names() const {
  absl::MutexLock lock(&mutex_);
  return entries_.size();
}

void ContentStore::Keep(const std::string& sha256, Entry& entry, Chunk content) {
  if (entry.kept != nullptr) return turns_.splice(turns_.end(), turns_, entry.turn);
  if (content->size() > bytes_max_) return;
  while (bytes_ + content->size() > bytes_max_) {
    Entry& oldest = entries_.at(turns_.front());
    bytes_ -= oldest.kept->size();
    oldest.kept.reset();
    turns_.pop_front();
  }
  bytes_ += content->size();
  entry.kept = std::move(content);
  entry.turn = turns_.insert(turns_.end(), sha256);
}

// Its cost is shared by the entries that came since the last time.
void ContentStore::ForgetGone() {
  std::erase_if(entries_, [](const auto& item) { return item.second.shared.expired(); });
  forget_at_ = std::max<size_t>(64, 2 * entries_.size());
}

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
            if (capacity >= kKeptBytesMin) {
              memory->clear();
              shelf->free_bytes += capacity;
              shelf->free.push_back(std::move(*memory));
            }
            while (shelf->free_bytes > shelf->used_bytes) {
              shelf->free_bytes -= shelf->free.back().capacity();
              shelf->free.pop_back();
            }
          }};
}

void ChunkPool::Empty() {
  std::vector<std::string> freed;  // Without the lock.
  absl::MutexLock lock(&shelf_->mutex);
  freed.swap(shelf_->free);
  shelf_->free_bytes = 0;
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
    chunks_.at(hash).placed = Placed(snapshot.placed, &chunk);
  }
  return absl::OkStatus();
}

absl::Status ChunkStore::Expect(const std::vector<ChunkSize>& chunks) {
  std::vector<ChunkSize> sizes = chunks;
  uint64_t bytes = 0;
  absl::MutexLock lock(&mutex_);
  for (ChunkSize& chunk : sizes) {
    const auto held = chunks_.find(chunk.sha256);
    if (held != chunks_.end() && held->second.placed != nullptr) chunk.bytes = 0;
    bytes += chunk.bytes;
  }
  OXBOW_RETURN_IF_ERROR(CheckBudget(bytes));
  MakeNewest(sizes);
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
  if (held == chunks_.end() || held->second.placed != nullptr) return;
  held->second.chunk = std::move(chunk);
  for (const Listener* listener : listeners_) listener->put_();
}

void ChunkStore::Place(const std::string& sha256, Placed placed) {
  {
    Held before;  // Its memory is freed without the lock.
    absl::MutexLock lock(&mutex_);
    const auto found = chunks_.find(sha256);
    if (found == chunks_.end()) return;
    Held& held = found->second;
    before = held;
    bytes_ -= held.bytes;
    held = {.chunk = nullptr, .placed = std::move(placed), .uses = held.uses};
    for (const Listener* listener : listeners_) listener->put_();
  }
  // A base goes chunk by chunk, and nothing of its size comes in its place.
  pool_.Empty();
}

void ChunkStore::ForgetLost(const std::string& sha256) {
  const Placed placed = Look(sha256).placed;
  if (placed == nullptr || placed->Read().ok()) return;
  absl::MutexLock lock(&mutex_);
  const auto held = chunks_.find(sha256);
  // Unless it has got another place meanwhile.
  if (held != chunks_.end() && held->second.placed == placed) held->second.placed.reset();
}

void ChunkStore::ForgetLost() {
  std::vector<std::string> placed;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [hash, held] : chunks_) {
      if (held.placed != nullptr) placed.push_back(hash);
    }
  }
  for (const std::string& hash : placed) ForgetLost(hash);
}

ChunkStore::Whereabouts ChunkStore::Look(const std::string& sha256) const {
  absl::MutexLock lock(&mutex_);
  const auto held = chunks_.find(sha256);
  if (held == chunks_.end()) return {};
  return {held->second.chunk, held->second.placed};
}

Chunk ChunkStore::Find(const std::string& sha256) const { return Look(sha256).chunk; }

absl::StatusOr<Chunk> ChunkStore::Read(const std::string& sha256) const {
  const Whereabouts there = Look(sha256);
  if (there.chunk != nullptr || there.placed == nullptr) return there.chunk;
  return there.placed->Read();
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
