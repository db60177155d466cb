// Where a finished group goes once it has come whole: to whoever says whether it counts.
#pragma once

#include <string>

#include "base/ids.h"
#include "oxbow/v1/experience_sink.pb.h"
#include "services/learner/desk/group_assembler.h"

namespace oxbow::learner {

// Thread-safe.
class ResultReceiver {
 public:
  virtual ~ResultReceiver() = default;

  // Checks, fences and keeps a result. `error` says why a group is INVALID.
  virtual v1::InsertOutcome Submit(ReceivedGroup group, std::string& error) = 0;

  // The result of a lease was malformed before it was complete: the lease has failed.
  virtual void Refuse(LeaseId lease, const std::string& reason) = 0;
};

}  // namespace oxbow::learner
