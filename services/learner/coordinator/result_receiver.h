// SPDX-License-Identifier: Apache-2.0
// Receives finished groups that have arrived completely, and decides whether they count.
#pragma once

#include <string>

#include "base/ids.h"
#include "oxbow/v1/experience_sink.pb.h"
#include "services/learner/coordinator/group_assembler.h"

namespace oxbow::learner {

// Thread-safe.
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

}  // namespace oxbow::learner
