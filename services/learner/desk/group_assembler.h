// Finished groups wait here until all of their learner step have come.
//
// A mixed group comes with its tail only; the learner has its head. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "oxbow/v1/common.pb.h"
#include "services/learner/desk/byte_budget.h"

namespace oxbow::learner {

// One accepted group, its latent bytes inside the message.
struct ReceivedGroup {
  v1::Group group;
  uint32_t attempt = 0;
  ByteBudget::Hold bytes;  // Of the sink's budget; given back when the group is destroyed.
};

class GroupAssembler {
 public:
  // Adds an accepted group. Each group comes once: leases see to that.
  void Add(LearnerStep step, ReceivedGroup group);

  // Waits until `count` groups of the step are here and hands them over by group id. kCancelled
  // after Stop, kDeadlineExceeded after `timeout`; nothing is taken then.
  absl::StatusOr<std::vector<ReceivedGroup>> Take(LearnerStep step, size_t count,
                                                  absl::Duration timeout);

  // Wakes the waiting learner for good, with this status.
  void Stop(absl::Status reason);

  size_t ready() const;  // Groups that wait.

 private:
  mutable absl::Mutex mutex_;
  std::map<LearnerStep, std::map<uint64_t, ReceivedGroup>> steps_ ABSL_GUARDED_BY(mutex_);
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::learner
