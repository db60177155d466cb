// SPDX-License-Identifier: Apache-2.0
// Writes of the learner's loop to the run's directory, and how they bear with a disk that is full
// or away: they are tried again until patience is over.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/learner/loop/loop_parts.h"

namespace oxbow::learner {

// Owned by the loop's thread.
class RunDisk {
 public:
  // All outlive it. `committed`: the steps that a failure is about.
  RunDisk(absl::Duration patience, const uint64_t& committed, const DrainRequest& drain,
          const LoopParts& parts)
      : patience_(patience), committed_(committed), drain_(drain), parts_(parts) {}

  // Calls `write` until it has written or patience is over. `what` is a label of the metric of
  // failed writes.
  absl::Status Persist(const std::string& what, const std::function<absl::Status()>& write);
  // A write that a draining run does without: kCancelled instead of another try.
  absl::Status PersistUnlessDrained(const std::string& what,
                                    const std::function<absl::Status()>& write);

  // Says that a write has failed: in the log, to people who look at the run, and to its alerts.
  void NoteUnwritten(const std::string& what, const absl::Status& why, absl::Duration pause);
  // A run that was asked to stop says why it cannot write before its launcher loses patience: OK
  // until then.
  absl::Status StopUnwritten(const absl::Status& why) const;
  // A stop request ends the pause, so that what is still to be written is tried at once, and soon
  // again. An error: the run cannot go on.
  absl::Status Pause(absl::Duration pause);

  absl::Duration patience() const { return patience_; }
  // Whether the run drains, which ends a wait for the disk.
  const DrainRequest& drain() const { return drain_; }

 private:
  const absl::Duration patience_;
  const uint64_t& committed_;
  const DrainRequest& drain_;
  const LoopParts& parts_;
};

}  // namespace oxbow::learner
