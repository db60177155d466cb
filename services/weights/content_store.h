// SPDX-License-Identifier: Apache-2.0
// Immutable bytes by their SHA-256, for what is small, shared by many and asked for again: the
// conditioning of prompts.
//
// The store keeps what was used last, up to a limit. What somebody else still holds is found too,
// and takes no room: a learner keeps nothing here and serves what its planned groups hold.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

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
