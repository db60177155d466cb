// SPDX-License-Identifier: Apache-2.0
#include "services/weights/content_store.h"

#include <algorithm>
#include <utility>

namespace oxbow::weights {

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

}  // namespace oxbow::weights
