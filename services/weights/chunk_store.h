// The last few snapshots and their chunks, in memory.
//
//   snapshots_ (newest last)  -- own -->  chunks by hash  <-- found or awaited by -- Fetch
//
// A chunk that several snapshots use is held once. The oldest snapshots go when
// there are too many or their bytes exceed the budget; the newest always stays.
// The learner adds whole snapshots; a worker expects one and puts its chunks as
// they are verified, so that others can be served before it is whole.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/weights/chunk_pool.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

class ChunkStore {
 public:
  // Requires snapshots_max >= 1.
  ChunkStore(size_t snapshots_max, uint64_t bytes_max);

  // Makes `snapshot` the newest. kResourceExhausted, with nothing changed, if
  // it alone exceeds the budget. `new_bytes`, if wanted: of chunks that no
  // retained snapshot had.
  absl::Status Add(const Snapshot& snapshot, uint64_t* new_bytes = nullptr);

  // Makes a snapshot of distinct `chunks` the newest; those not here yet are
  // put later. kResourceExhausted as for Add.
  absl::Status Expect(const std::vector<ChunkSize>& chunks);

  // A verified chunk that is expected; others are dropped.
  void Put(const std::string& sha256, Chunk chunk);

  // Null if it is not here.
  Chunk Find(const std::string& sha256) const;

  // Waits for it up to `timeout`; null if it did not come.
  Chunk Await(const std::string& sha256, absl::Duration timeout) const;

  // Whether a retained snapshot has it, here or on its way.
  bool Wants(const std::string& sha256) const;

  // Where the chunks that are put get their memory.
  ChunkPool& pool() { return pool_; }

  uint64_t bytes() const;  // Of distinct chunks, here or on their way.
  size_t snapshots() const;

 private:
  struct Held {
    Chunk chunk;  // Null: on its way.
    uint64_t bytes = 0;
    size_t uses = 0;
  };
  absl::Status CheckBudget(uint64_t bytes) const;
  void MakeNewest(const std::vector<ChunkSize>& chunks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Chunk FindLocked(const std::string& sha256) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t snapshots_max_;
  const uint64_t bytes_max_;
  ChunkPool pool_;
  mutable absl::Mutex mutex_;
  std::deque<std::vector<std::string>> snapshots_ ABSL_GUARDED_BY(mutex_);  // Their chunk hashes.
  std::map<std::string, Held> chunks_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace oxbow::weights
