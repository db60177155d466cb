// SPDX-License-Identifier: Apache-2.0
// Offers: decided one after another under the store's lock, written together without it.
//
//   open_       what was decided since the last write began
//   writing_    a thread writes: large entries into segments, fsync, then the batch, fsync
//   told_       groups on the disk, until a thread has told their callers; the next write goes on
//               meanwhile
//
// An offer is decided on what those before it will have made of the store. Where a write fails,
// all that was decided since fails with it, and memory goes back to what the disk says. A caller
// that waits for its offer writes it when nobody else does; a thread writes the other offers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/buffer/live_replay.h"
#include "services/buffer/segments.h"

namespace oxbow::buffer {

class OfferWriter {
 public:
  // `mutex` is the store's lock, which guards `live`. Both outlive this.
  OfferWriter(absl::Mutex& mutex, LiveReplay& live);
  ~OfferWriter();  // Writes all offers first.

  // As ReplayStore's.
  using Offered = std::function<void(absl::StatusOr<OfferReport>)>;
  absl::StatusOr<OfferReport> Offer(const Caller& caller, std::vector<Entry> entries)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OfferAsync(const Caller& caller, std::vector<Entry> entries, Offered done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // All that was offered is durable, and nothing else is offered while the lock is held.
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  struct Group;  // Offers that were decided and are not durable yet.
  struct Copied;
  absl::Status Enter(const Caller& caller, std::vector<Entry>& entries, Offered& done, bool waits)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Renew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Group& Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteToDisk(Group& group) ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteGroup() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteGroups() ABSL_LOCKS_EXCLUDED(mutex_);
  void Settled(Group& group, absl::Duration took) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Tell(Group& group);
  void TellCallers() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Entry> WorthCopying() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Copied> CopyEntries(const std::vector<Entry>& records, uint64_t segment)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void CompactSegments() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex& mutex_;
  LiveReplay& live_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Group> open_ ABSL_GUARDED_BY(mutex_);  // Null: nothing waits to be written.
  // A thread writes a group or copies segments without the lock; others only read the disk.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  int settling_ ABSL_GUARDED_BY(mutex_) = 0;  // Changes that wait for the groups; offers wait.
  // Both belong to the state that was read by the load number `load_`.
  std::unique_ptr<SegmentWriter> writer_;             // For the writing thread; null: no segment.
  uint64_t copies_from_ ABSL_GUARDED_BY(mutex_) = 0;  // Dead bytes; set by a copy that failed.
  uint64_t load_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread groups_ ABSL_GUARDED_BY(mutex_);  // Writes offers for which nobody waits,
  std::thread teller_ ABSL_GUARDED_BY(mutex_);  // and tells their callers.
  std::vector<std::unique_ptr<Group>> told_ ABSL_GUARDED_BY(mutex_);  // In the order written.
  bool all_written_ ABSL_GUARDED_BY(mutex_) = false;                  // At the end.
};

}  // namespace oxbow::buffer
