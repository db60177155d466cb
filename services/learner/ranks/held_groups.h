// SPDX-License-Identifier: Apache-2.0
// The groups whose latents a rank above 0 holds until rank 0's manifest names them.
//
// A group is kept before rank 0 is asked whether it counts, because the manifest that names it may
// arrive before the answer. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/coordinator/group_check.h"

namespace oxbow::learner {

class HeldGroups final : public ResultReceiver {
 public:
  using Ask = std::function<absl::StatusOr<v1::InsertResponse::Ack>(const v1::Group& group)>;

  // `ask` tells rank 0 about a group and returns its answer. `offers`: the group that is told keeps
  // the latents of its best trajectory, for the replay buffer.
  HeldGroups(GroupRules rules, bool offers, Ask ask);

  v1::InsertOutcome Submit(ReceivedGroup group, std::string& error) override;
  void Refuse(LeaseId lease, const std::string& worker, const std::string& reason) override;

  // The group of a lease that the manifest names. kInternal if it is not here.
  absl::StatusOr<ReceivedGroup> Take(LeaseId lease);

  // Drops the groups of steps before `step`.
  void Forget(LearnerStep step);

 private:
  const GroupRules rules_;
  const bool offers_;
  const Ask ask_;
  absl::Mutex mutex_;
  std::map<uint64_t, ReceivedGroup> groups_ ABSL_GUARDED_BY(mutex_);  // By lease.
};

}  // namespace oxbow::learner
