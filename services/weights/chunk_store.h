// The last few snapshots and their chunks, in memory.
//
//   snapshots_ (newest last)  -- own -->  chunks by hash  <-- found by -- Fetch
//
// A chunk that several snapshots use is held once. The oldest snapshots go when
// there are too many or their bytes exceed the budget; the newest always stays.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

class ChunkStore {
 public:
  // Requires snapshots_max >= 1.
  ChunkStore(size_t snapshots_max, uint64_t bytes_max);

  // Makes `snapshot` the newest. kResourceExhausted, with nothing changed, if
  // it alone exceeds the budget.
  absl::Status Add(const Snapshot& snapshot);

  // Null if no retained snapshot has it.
  Chunk Find(const std::string& sha256) const;

  uint64_t bytes() const;  // Of distinct chunks.
  size_t snapshots() const;

 private:
  struct Held {
    Chunk chunk;
    size_t uses = 0;
  };
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t snapshots_max_;
  const uint64_t bytes_max_;
  mutable absl::Mutex mutex_;
  std::deque<std::vector<std::string>> snapshots_ ABSL_GUARDED_BY(mutex_);  // Their chunk hashes.
  std::map<std::string, Held> chunks_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace oxbow::weights
