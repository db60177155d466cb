// Memory of chunks that is used again.
//
// A snapshot's chunks go when a newer one comes, and as many bytes come in
// their place. Asking the system for fresh pages each time costs more than
// receiving and hashing what is put into them, so a chunk's memory goes back
// here when its last user lets go of it. Never more is kept than is in use.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

class ChunkPool {
 public:
  ChunkPool() : shelf_(std::make_shared<Shelf>()) {}

  // Empty, with memory for at least `bytes`.
  std::string Take(uint64_t bytes);

  // A chunk of these bytes, whose memory comes back. It may outlive the pool.
  Chunk Seal(std::string bytes);

  uint64_t bytes_kept() const;

 private:
  struct Shelf {
    absl::Mutex mutex;
    std::vector<std::string> free ABSL_GUARDED_BY(mutex);
    uint64_t free_bytes ABSL_GUARDED_BY(mutex) = 0;
    uint64_t used_bytes ABSL_GUARDED_BY(mutex) = 0;  // Of sealed chunks that are alive.
  };
  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace oxbow::weights
