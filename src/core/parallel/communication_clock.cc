// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/communication_clock.h"

#include <utility>

#include "base/check.h"

namespace oxbow::parallel {

void CommunicationClock::Began() {
  const absl::MutexLock lock(&mutex_);
  if (under_way_++ == 0) since_ = clock_.Now();
}

void CommunicationClock::Ended() {
  const absl::MutexLock lock(&mutex_);
  OXBOW_CHECK(under_way_ > 0) << "an operation ended twice";
  if (--under_way_ == 0) time_.total += clock_.Now() - since_;
}

void CommunicationClock::StandsStill() {
  Began();
  const absl::MutexLock lock(&mutex_);
  still_since_ = clock_.Now();
}

void CommunicationClock::GoesOn() {
  {
    const absl::MutexLock lock(&mutex_);
    time_.exposed += clock_.Now() - still_since_;
  }
  Ended();
}

CommunicationTime CommunicationClock::Take() {
  const absl::MutexLock lock(&mutex_);
  const absl::Duration now = clock_.Now();
  if (under_way_ > 0) time_.total += now - std::exchange(since_, now);
  return std::exchange(time_, {});
}

}  // namespace oxbow::parallel
