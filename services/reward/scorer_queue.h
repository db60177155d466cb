// SPDX-License-Identifier: Apache-2.0
// The queue of one scorer: joins the items of all callers into batches.
//
// A batch is cut when `batch_max` items wait (the scorer's), or the oldest has waited for
// `batch_wait`. A scorer that gains nothing by batches (batch_max 0) waits for nobody: each free
// thread takes its share. The items of one request may fall into several batches, but a groupwise
// scorer gets each request whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "core/reward/scorer.h"

namespace oxbow::reward {

// Thread-safe.
class ScorerQueue {
 public:
  struct Options {
    uint32_t threads = 4;  // At most; the scorer's concurrency_max may say less.
    absl::Duration batch_wait = absl::Milliseconds(5);
    uint64_t items_max = 4096;     // That wait or are scored.
    uint64_t bytes_max = 1 << 30;  // All their pixels together.
  };

  using Results = std::vector<absl::StatusOr<Score>>;
  // The wish of one caller.
  struct Request {
    std::vector<Item> items;                        // At least one.
    std::shared_ptr<const void> memory;             // Keeps what the items refer to.
    std::shared_ptr<const std::atomic<bool>> gone;  // True: the caller gave up; drop its items.
    std::function<void(Results)> done;  // Called once, from any thread: one result per item.
  };

  // A batch that was scored.
  struct Batch {
    size_t items = 0;
    size_t scored = 0;      // Items with a score.
    size_t failed = 0;      // Items without one, for which their callers are not to blame.
    absl::Duration waited;  // By the oldest of its items.
    absl::Duration took;
    // Not OK: the scorer computes no more in this process, its device is lost, unfit or full. The
    // items' own errors are kUnavailable: their callers ask another server.
    absl::Status broken = absl::OkStatus();
  };

  // `scorer` and `clock` outlive this. `scored` is called after each batch.
  ScorerQueue(Options options, Scorer& scorer, const Clock& clock,
              std::function<void(const Batch&)> scored);
  // Scores what waits.
  ~ScorerQueue();

  Scorer& scorer() const { return scorer_; }

  // kResourceExhausted if too much waits: it says when to ask again (rpc/retry.h).
  // kInvalidArgument if a
  // groupwise scorer cannot have all items in one batch.
  absl::Status Push(Request request);

  // Drops the items of callers that are gone, which happens by itself only when a batch is cut.
  void DropGone();

  // The most bytes that options.bytes_max ever had to admit at once.
  uint64_t bytes_peak() const {
    absl::MutexLock lock(&mutex_);
    return bytes_peak_;
  }

 private:
  struct Entry {
    Request request;
    absl::Duration since;
    uint64_t bytes = 0;
    size_t taken = 0;  // Items that are in a batch.
    size_t finished = 0;
    Results results;
  };
  struct Piece {  // Items [begin, end) of an entry.
    std::shared_ptr<Entry> entry;
    size_t begin = 0;
    size_t end = 0;
  };

  void Work();
  std::vector<Piece> Cut() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Ready(absl::Duration now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Piece> Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ScorePieces(const std::vector<Piece>& batch);
  bool Finished(Entry& entry, size_t items) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Scorer& scorer_;
  const Clock& clock_;
  const std::function<void(const Batch&)> scored_;
  const size_t threads_max_;

  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  std::deque<std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);  // With items to take.
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;                          // Items to take.
  uint64_t items_ ABSL_GUARDED_BY(mutex_) = 0;                          // Not finished.
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_peak_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace oxbow::reward
