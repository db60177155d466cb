#include "services/weights/chunk_pool.h"

#include <utility>

namespace oxbow::weights {
namespace {

constexpr uint64_t kKeptBytesMin = 64 << 10;  // Less comes from the heap without new pages.

}  // namespace

std::string ChunkPool::Take(uint64_t bytes) {
  std::string memory;
  {
    absl::MutexLock lock(&shelf_->mutex);
    // What is much too large stays for a large one.
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
            // Sealed as const, made as not.
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

}  // namespace oxbow::weights
