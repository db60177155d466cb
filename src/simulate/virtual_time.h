// SPDX-License-Identifier: Apache-2.0
// The queues of virtual time. Events come out earliest first; those of one instant come in the
// order in which they were added, so a simulation is a function of its model and seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "absl/time/time.h"
#include "base/check.h"
#include "base/clock.h"

namespace oxbow::simulate {

enum class EventKind : uint8_t {
  kLearnerPhaseEnds,  // subject: -
  kLearnerDies,       // subject: -
  kLearnerStarts,     // subject: -
  kGrant,             // The coordinator grants one lease, if it can.
  kTick,              // The coordinator does what became possible by time alone.
  kLeaseArrives,      // subject: worker, value: lease
  kGroupScored,       // subject: worker, value: lease
  kGroupDelivered,    // subject: worker, value: lease
  kLeaseFinished,     // subject: worker, value: lease; the coordinator hears of the free place.
  kRenew,             // subject: worker
  kWeightsFetched,    // subject: worker, value: learner step
  kWeightsApplied,    // subject: worker
  kWeightsReported,   // subject: worker, value: learner step; the coordinator hears of it.
  kTakeBatch,         // subject: worker
  kBatchDone,         // subject: worker
  kWorkerDies,        // subject: worker
  kWorkerStarts,      // subject: worker
  kWorkerStalls,      // subject: worker
  kWorkerGoesOn,      // subject: worker, after a stall
};

struct Event {
  double at = 0;  // Seconds since the run began.
  uint64_t sequence = 0;
  uint64_t value = 0;
  uint32_t subject = 0;
  uint32_t generation = 0;  // The subject's when the event was added; with an older one it is void.
  EventKind kind = EventKind::kGrant;
};

// As a Clock it tells the time of the last event taken.
class EventQueue final : public Clock {
 public:
  // Requires that `at` is not in the past.
  void Add(EventKind kind, double at, uint32_t subject = 0, uint32_t generation = 0,
           uint64_t value = 0) {
    OXBOW_CHECK(at >= seconds_) << "an event in the past: " << at << " at " << seconds_;
    heap_.push({at, added_++, value, subject, generation, kind});
  }

  // The same for events that are added in order of their time, such as those that recur after one
  // interval: they need no heap.
  void AddInOrder(EventKind kind, double at, uint32_t subject, uint32_t generation) {
    const double earliest = in_order_.empty() ? seconds_ : in_order_.back().at;
    OXBOW_CHECK(at >= earliest) << "an event out of order: " << at << " after " << earliest;
    in_order_.push_back({at, added_++, 0, subject, generation, kind});
  }

  // Removes the next event and moves the time to it. Requires that there is one.
  Event Next() {
    OXBOW_CHECK(!empty()) << "nothing will ever happen again at " << seconds_;
    Event event;
    if (heap_.empty() || (!in_order_.empty() && Later{}(heap_.top(), in_order_.front()))) {
      event = in_order_.front();
      in_order_.pop_front();
    } else {
      event = heap_.top();
      heap_.pop();
    }
    seconds_ = event.at;
    now_ = absl::Seconds(seconds_);
    return event;
  }

  double seconds() const { return seconds_; }
  absl::Duration Now() const override { return now_; }
  uint64_t added() const { return added_; }
  bool empty() const { return heap_.empty() && in_order_.empty(); }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> heap_;
  std::deque<Event> in_order_;
  double seconds_ = 0;
  absl::Duration now_;
  uint64_t added_ = 0;
};

// A queue before one or more equal servers, first come first served: a network link, the reward
// servers, the coordinator's lock. In virtual time a job's end is known when it arrives.
class SerialServer {
 public:
  // `servers` 0: as many as it takes, so that no job waits.
  explicit SerialServer(uint32_t servers) : unlimited_(servers == 0) {
    for (uint32_t i = 0; i < servers; ++i) free_at_.push(0);
  }

  // A job of `seconds` arrives at `now`; returns when it is done. Requires that jobs arrive in
  // order of time.
  double Serve(double now, double seconds) {
    busy_s_ += seconds;
    if (unlimited_ || seconds <= 0) return now + seconds;
    const double done = std::max(now, free_at_.top()) + seconds;
    free_at_.pop();
    free_at_.push(done);
    return done;
  }

  // When a server is free for a job that arrives at `now`.
  double FreeAt(double now) const { return unlimited_ ? now : std::max(now, free_at_.top()); }

  double busy_s() const { return busy_s_; }  // Sum over servers.

 private:
  const bool unlimited_;
  double busy_s_ = 0;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at_;
};

}  // namespace oxbow::simulate
