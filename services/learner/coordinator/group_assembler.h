// SPDX-License-Identifier: Apache-2.0
// Finished groups: the interface that receives each, and the wait until all groups of their learner
// step have arrived. A mixed group arrives with its tail only; the learner has its head.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/byte_budget.h"
#include "base/ids.h"
#include "oxbow/v1/common.pb.h"
#include "oxbow/v1/experience_sink.pb.h"

namespace oxbow::learner {

// One accepted group, its latent bytes inside the message.
struct ReceivedGroup {
  v1::Group group;
  uint32_t attempt = 0;
  ByteBudget::Hold bytes;  // Part of the sink's budget, until destruction.
};

// Receives groups that have arrived completely, and decides whether they count. Thread-safe.
class ResultReceiver {
 public:
  virtual ~ResultReceiver() = default;

  // Checks a group, fences it by its lease, and keeps it. `error` says why a group is INVALID.
  // UNSPECIFIED: it could not be decided, and the worker should send the group again.
  virtual v1::InsertOutcome Submit(ReceivedGroup group, std::string& error) = 0;

  // Reports that a result of `worker` was malformed before it was complete: its lease has failed,
  // if it is this worker's.
  virtual void Refuse(LeaseId lease, const std::string& worker, const std::string& reason) = 0;
};

// Thread-safe.
class GroupAssembler {
 public:
  // Adds an accepted group. Each group is added once: leases ensure that.
  void Add(LearnerStep step, ReceivedGroup group);

  // Waits for `count` groups of the step and returns them, ordered by group id. kCancelled after
  // Stop, kDeadlineExceeded after `timeout`; then no group is removed.
  absl::StatusOr<std::vector<ReceivedGroup>> Take(LearnerStep step, size_t count,
                                                  absl::Duration timeout);

  // Wakes the waiting learner with this status; later calls of Take return it at once.
  void Stop(absl::Status reason);
  absl::Status stopped() const;  // The reason; OK before Stop.

  size_t ready() const;  // Number of waiting groups.

 private:
  mutable absl::Mutex mutex_;
  std::map<LearnerStep, std::map<uint64_t, ReceivedGroup>> steps_ ABSL_GUARDED_BY(mutex_);
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::learner
