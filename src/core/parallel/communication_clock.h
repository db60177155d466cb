// SPDX-License-Identifier: Apache-2.0
// How long a rank has been communicating, and for how much of that time its owner waited.
//
// Operations may overlap each other and their owner's work. `total` is the time in which at least
// one was under way, each moment counted once. Waiting for ranks that come later is part of it.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {

// Thread-safe.
class CommunicationClock {
 public:
  explicit CommunicationClock(const Clock& clock) : clock_(clock) {}

  // An operation begins and ends; one call of each for every operation.
  void Began();
  void Ended();
  // The owner begins and ends waiting for communication. That time counts as communication too, as
  // the owner notices the end of an operation later than it happens.
  void StandsStill();
  void GoesOn();

  // The times since the last call; an operation under way is counted up to this moment.
  CommunicationTime Take();

 private:
  const Clock& clock_;
  absl::Mutex mutex_;
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration since_ ABSL_GUARDED_BY(mutex_);
  absl::Duration still_since_ ABSL_GUARDED_BY(mutex_);
  CommunicationTime time_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::parallel
