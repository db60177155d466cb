// SPDX-License-Identifier: Apache-2.0
// Time as a parameter. Code that waits or expires things takes a Clock, so that tests control time.
#pragma once

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace oxbow {

// Monotonic time since an arbitrary start; immune to wall-clock jumps. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Duration Now() const = 0;

  // The process's steady clock.
  static const Clock& Steady();
};

inline const Clock& Clock::Steady() {
  class SteadyClock final : public Clock {
   public:
    absl::Duration Now() const override {
      return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
    }
  };
  static const SteadyClock clock;
  return clock;
}

// Time that moves only when told to. Thread-safe.
class FakeClock final : public Clock {
 public:
  absl::Duration Now() const override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }
  void Advance(absl::Duration by) {
    absl::MutexLock lock(&mutex_);
    now_ += by;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Duration now_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

}  // namespace oxbow
