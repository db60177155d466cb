// What happens when, in virtual time: a heap of events, earliest first; events of one instant come
// in the order in which they were added, so a simulation is a function of its model and seed.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "base/check.h"

namespace oxbow::simulate {

enum class EventKind : uint8_t {
  kLearnerPhaseEnds,  // subject: -
  kLearnerDies,       // subject: -
  kLearnerStarts,     // subject: -
  kGrant,             // the coordinator decides about one lease
  kSpeculate,         // a group under way may have become late
  kGroupIsWarm,       // subject: group offset in value; may be granted again after a failure
  kLeaseArrives,      // subject: lease
  kGroupScored,       // subject: lease
  kGroupDelivered,    // subject: lease
  kLeaseFinished,     // subject: lease; the coordinator hears that the worker has room again
  kLeaseExpires,      // subject: lease
  kWeightsFetched,    // subject: worker, value: learner step
  kWeightsApplied,    // subject: worker
  kWeightsReported,   // subject: worker; the coordinator hears of the applied weights
  kTakeBatch,         // subject: worker
  kBatchDone,         // subject: worker
  kWorkerDies,        // subject: worker
  kWorkerStarts,      // subject: worker
  kWorkerStalls,      // subject: worker
};

struct Event {
  double at = 0;  // Seconds since the run began.
  uint64_t sequence = 0;
  uint64_t value = 0;
  uint32_t subject = 0;
  uint32_t generation = 0;  // Of the subject; an event of an earlier one means nothing any more.
  EventKind kind = EventKind::kGrant;
};

class EventQueue {
 public:
  // Requires that `at` is not in the past.
  void Add(EventKind kind, double at, uint32_t subject = 0, uint32_t generation = 0,
           uint64_t value = 0) {
    OXBOW_CHECK(at >= now_) << "an event in the past: " << at << " at " << now_;
    heap_.push({at, added_++, value, subject, generation, kind});
  }

  // Removes the next event and moves the time to it. Requires that there is one.
  Event Next() {
    OXBOW_CHECK(!heap_.empty()) << "nothing will ever happen again at " << now_;
    const Event event = heap_.top();
    heap_.pop();
    now_ = event.at;
    return event;
  }

  double now() const { return now_; }
  uint64_t added() const { return added_; }
  bool empty() const { return heap_.empty(); }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> heap_;
  double now_ = 0;
  uint64_t added_ = 0;
};

}  // namespace oxbow::simulate
