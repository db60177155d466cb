// How long a rank has been communicating, and how much of it its owner waited for.
//
// Operations may overlap each other and their owner's work: `total` is the time in which at least
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

  // An operation is under way, until it has ended; once each.
  void Began();
  void Ended();
  // The owner stands still for communication, and goes on. It counts as communicating meanwhile: it
  // notices an end later than it happens.
  void StandsStill();
  void GoesOn();

  // Since the last call; what is under way is counted up to this moment.
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
