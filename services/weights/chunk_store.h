// SPDX-License-Identifier: Apache-2.0
// The last few snapshots and their chunks, in memory.
//
//   snapshots_ (newest last)  -- own -->  chunks by hash  <-- found by -- Fetch
//
// A chunk that several snapshots use is held once. The oldest snapshots are dropped when there are
// too many or their bytes exceed the budget; the newest always stays. Chunks that are read from
// their place (tensor_place.h) take nothing of it. The learner adds whole snapshots. A worker says
// which chunks it expects and puts each one as soon as it is verified, so that other workers can
// fetch it before the snapshot is whole; when it has the bytes elsewhere, too, the chunk gets that
// place. All classes are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

// Memory for chunks that is used again. When a newer snapshot replaces one, as many bytes come as
// go, and fresh pages from the system cost more than receiving and hashing what is put into them.
// So a chunk's memory comes back here when its last user lets go of it. The pool keeps no more
// bytes than are in use.
class ChunkPool {
 public:
  ChunkPool() : shelf_(std::make_shared<Shelf>()) {}

  // An empty string with memory for at least `bytes`.
  std::string Take(uint64_t bytes);

  // Makes these bytes a chunk whose memory comes back. The chunk may outlive the pool.
  Chunk Seal(std::string bytes);

  // Frees the memory that it keeps.
  void Empty();

  uint64_t bytes_kept() const;

 private:
  struct Shelf {
    absl::Mutex mutex;
    std::vector<std::string> free ABSL_GUARDED_BY(mutex);
    uint64_t free_bytes ABSL_GUARDED_BY(mutex) = 0;
    uint64_t used_bytes ABSL_GUARDED_BY(mutex) = 0;  // Bytes of the sealed chunks that are alive.
  };
  const std::shared_ptr<Shelf> shelf_;
};

class ChunkStore {
 public:
  // Requires snapshots_max >= 1.
  ChunkStore(size_t snapshots_max, uint64_t bytes_max);

  // Makes `snapshot` the newest. kResourceExhausted, with nothing changed, if its own bytes exceed
  // the budget. `new_bytes`, unless null, is set to the bytes of chunks that no retained snapshot
  // had.
  absl::Status Add(const Snapshot& snapshot, uint64_t* new_bytes = nullptr);

  // Makes a snapshot of distinct `chunks` the newest; those not here yet are put later.
  // kResourceExhausted as for Add.
  absl::Status Expect(const std::vector<ChunkSize>& chunks);

  // Keeps a verified chunk if it is expected; drops it otherwise.
  void Put(const std::string& sha256, Chunk chunk);

  // An expected chunk is read from `placed` from now on: one in memory is held no longer, nor is
  // its memory kept for others.
  void Place(const std::string& sha256, Placed placed);

  // Chunks whose places have other bytes now are missing, until they are put or placed again. Reads
  // the place of that one, or of all.
  void ForgetLost(const std::string& sha256);
  void ForgetLost();

  // A chunk in memory; null if it is not here.
  Chunk Find(const std::string& sha256) const;

  // A chunk, also one that must be read from its place, which may wait for a disk; null if it is
  // not here. kDataLoss if other bytes are there now.
  absl::StatusOr<Chunk> Read(const std::string& sha256) const;

  // Where a chunk is. Both null: it is not here. At most one is set by Put and Place.
  struct Whereabouts {
    Chunk chunk;
    Placed placed;
  };
  Whereabouts Look(const std::string& sha256) const;

  // Calls `put` after each chunk that is put, with the store locked: it only wakes somebody. Until
  // its destruction; the store outlives it.
  class Listener {
   public:
    Listener(ChunkStore& store, std::function<void()> put);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    friend class ChunkStore;
    ChunkStore& store_;
    const std::function<void()> put_;
  };

  // Whether a retained snapshot has the chunk, here or on its way.
  bool Wants(const std::string& sha256) const;

  // Chunks that are put get their memory here.
  ChunkPool& pool() { return pool_; }

  uint64_t bytes() const;  // Bytes of distinct chunks in memory, here or on their way.
  size_t snapshots() const;

 private:
  struct Held {
    Chunk chunk;  // Null: on its way, or placed.
    Placed placed;
    uint64_t bytes = 0;  // 0 if it is placed alone.
    size_t uses = 0;
  };
  absl::Status CheckBudget(uint64_t bytes) const;
  void MakeNewest(const std::vector<ChunkSize>& chunks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t snapshots_max_;
  const uint64_t bytes_max_;
  ChunkPool pool_;
  mutable absl::Mutex mutex_;
  std::deque<std::vector<std::string>> snapshots_ ABSL_GUARDED_BY(mutex_);  // Their chunk hashes.
  std::map<std::string, Held> chunks_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<Listener*> listeners_ ABSL_GUARDED_BY(mutex_);
};

// Immutable bytes by their SHA-256, for what is small, shared by many and asked for again: the
// conditioning of prompts.
//
// The store keeps what was used last, up to a limit. What somebody else still holds is found too,
// and takes no room: a learner keeps nothing here and serves what its planned groups hold.
// Thread-safe.
class ContentStore {
 public:
  // The store itself keeps up to `bytes_max`; 0: nothing.
  explicit ContentStore(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Takes bytes whose SHA-256 is `sha256`. What was used longest ago makes room. Returns the bytes
  // that are shared from now on, which are those that are here already if there are any: a caller
  // that wants them found must hold what it got back, not what it gave.
  Chunk Put(const std::string& sha256, Chunk content);

  // Null if neither the store nor anybody else holds it.
  Chunk Find(const std::string& sha256);

  uint64_t bytes() const;  // Bytes that the store keeps.
  size_t names() const;    // Hashes it knows, some of bytes that are gone.

 private:
  struct Entry {
    std::weak_ptr<const std::string> shared;
    Chunk kept;                             // Null: only others hold it.
    std::list<std::string>::iterator turn;  // In turns_, if kept.
  };
  void Keep(const std::string& sha256, Entry& entry, Chunk content)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetGone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t bytes_max_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::list<std::string> turns_ ABSL_GUARDED_BY(mutex_);  // Kept ones; last used, last.
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = 64;  // Entries at which gone ones are forgotten.
};

}  // namespace oxbow::weights
