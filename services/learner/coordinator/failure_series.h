// SPDX-License-Identifier: Apache-2.0
// The trouble that a run last met: what failed, why, how often since the last committed step.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "oxbow/v1/coordinator.pb.h"

namespace oxbow::learner {

// Not thread-safe. Times are of one clock.
class FailureSeries {
 public:
  // `what`: "group", "image", "evaluation".
  void Add(absl::Duration now, const std::string& what, const std::string& reason) {
    if (ended_ || count_ == 0) first_ = now;
    count_ = ended_ ? 1 : count_ + 1;
    ended_ = false;
    last_ = now;
    what_ = what;
    reason_ = reason;
  }

  // A step was committed: the next failure begins another series.
  void StepCommitted() { ended_ = true; }

  const std::string& reason() const { return reason_; }  // The last failure's; empty: none so far.

  // Leaves `response` as it is if nothing failed so far.
  void FillStatus(absl::Duration now, v1::StatusResponse& response) const {
    if (count_ == 0) return;
    v1::Failure& failure = *response.mutable_last_failure();
    failure.set_what(what_);
    failure.set_reason(reason_);
    failure.set_count(count_);
    failure.set_seconds_since_first(absl::ToDoubleSeconds(now - first_));
    failure.set_seconds_since_last(absl::ToDoubleSeconds(now - last_));
  }

 private:
  std::string what_;
  std::string reason_;
  uint64_t count_ = 0;
  bool ended_ = false;
  absl::Duration first_;
  absl::Duration last_;
};

}  // namespace oxbow::learner
