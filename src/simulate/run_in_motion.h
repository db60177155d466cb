// SPDX-License-Identifier: Apache-2.0
// The parts of a simulated run: the learner, its coordinator and the workers, each in a source of
// its own. They share the queue of events and the outcome, and call each other at one instant of
// virtual time. Callers use simulation.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/clock.h"
#include "core/lease/lease_table.h"
#include "simulate/run_model.h"
#include "simulate/simulation.h"

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

// Events come out earliest first; those of one instant come in the order in which they were added,
// so a simulation is a function of its model and seed. As a Clock it tells the time of the last
// event taken.
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

// A lease as its worker knows it, until the worker is done with it. It may have ended before.
struct HeldLease {
  enum class Stage : uint8_t { kOnTheWay, kWaiting, kSampling, kDelivering, kDelivered };

  lease::LeaseGrant grant;
  Stage stage = Stage::kOnTheWay;
  double work_s = 0;          // Sampling time spent on it.
  uint64_t sampled_step = 0;  // L_V of the weights it was sampled with.
};

struct Worker {
  std::string name;    // A new one after each death.
  uint32_t life = 0;   // Deaths so far.
  uint32_t token = 0;  // Changes with a death or a new epoch, which make older events void.
  bool up = true;
  bool has_weights = false;
  bool fetched = false;  // Newer weights wait to be applied.
  bool fetching = false;
  bool from_learner = false;  // It fetches from the learner itself.
  bool applying = false;
  bool sampling = false;
  bool taking = false;        // A batch is about to be taken.
  bool queued = false;        // Waits for leases.
  bool silent = false;        // It lost a lease by silence: no lease until it speaks again.
  bool renewing = false;      // Its next renewal is queued.
  uint64_t weights_step = 0;  // L_V, applied.
  uint64_t fetched_step = 0;
  uint64_t applying_step = 0;
  uint64_t reported_step = 0;  // The step that the coordinator knows; valid once `reported`.
  bool reported = false;
  uint64_t queued_step = 0;
  double factor = 1;  // Multiplies all its sampling times.
  double stalled_until = 0;
  double batch_began = 0;
  double batch_ends = 0;
  double down_since = 0;
  std::vector<HeldLease> held;  // In order of grant.
};

// Null: the worker holds no such lease.
HeldLease* FindHeld(Worker& worker, LeaseId lease);

// Shared by the parts.
struct Run {
  const RunModel model;
  EventQueue queue;
  Outcome outcome;
  double now() const { return queue.seconds(); }
};

// Streams of random numbers.
enum Purpose : uint32_t {
  kDuration,
  kSpeed,
  kDeath,
  kStall,
  kSilence,
  kLearnerDeath,
  kGiveUp,
  kApplying
};
double Uniform(const RunModel& model, Purpose purpose, uint64_t subject, uint32_t count);
double Exponential(const RunModel& model, Purpose purpose, uint64_t subject, uint32_t count,
                   double per_hour);

class Coordinator;
class Fleet;

class Learner {
 public:
  Learner(Run& run, Coordinator& coordinator, Fleet& fleet);

  void OnStarts();
  void OnPhaseEnds();
  void OnDies();
  void Account();                    // Books the time since the last call.
  void Book(const HeldLease& held);  // An accepted result.
  void Proceed();                    // Starts the update if the step is complete.
  void Finish();                     // Completes its part of the outcome.

  bool down() const { return phase_ == Phase::kDown; }
  bool done() const { return committed_ >= run_.model.steps && !down(); }
  uint32_t epoch() const { return epoch_; }
  std::optional<uint64_t> published() const { return published_; }  // L_V of the weights on offer.

 private:
  enum class Phase { kDown, kPublish, kPlan, kFinish, kWait, kUpdate };

  // Sums over the accepted groups of one learner step.
  struct StepWork {
    uint64_t accepted = 0;
    double work_s = 0;  // Sampling time.
    uint64_t staleness_sum = 0;
    uint64_t staleness_max = 0;
  };

  void Enter(Phase phase, double seconds);
  void AfterPlan();
  void Commit();
  void TakeBackUncheckpointed();

  Run& run_;
  Coordinator& coordinator_;
  Fleet& fleet_;
  const double update_s_;
  std::vector<StepWork> steps_;  // By learner step, as far as planned.
  Phase phase_ = Phase::kDown;
  uint32_t epoch_ = 0;
  uint64_t committed_ = 0;
  uint64_t checkpoint_ = 0;  // Steps in the newest checkpoint.
  double phase_began_ = 0;
  double accounted_until_ = 0;
  std::optional<uint64_t> published_;
  uint64_t staleness_sum_ = 0;
  uint64_t stale_groups_ = 0;
};

class Coordinator {
 public:
  Coordinator(Run& run, Learner& learner, Fleet& fleet);

  // A table of leases of this epoch, after so many steps. No worker waits.
  void Restart(Epoch epoch, LearnerStep checkpoint);
  void Want(uint32_t worker);  // Queues the worker if it has room.
  void Arm();                  // Makes sure that a grant is tried if there may be one.
  void OnGrant();
  void OnTick();
  void OnReported(uint32_t worker, uint64_t step);
  void RenewHeld(uint32_t worker);
  void OnDelivered(uint32_t worker, HeldLease& held);
  void OnFailed(uint32_t worker, HeldLease& held);
  void OnFinished(uint32_t worker, const HeldLease& held);
  void OnStreamBreaks(const Worker& worker);

  lease::LeaseTable& table() { return *table_; }
  const absl::Status& status() const { return status_; }  // Not OK: a real run would have ended.
  double busy_s() const { return server_.busy_s(); }

 private:
  bool FindWanting(uint32_t& worker);
  void ArmStraggler();
  void HelpStragglers();
  void Give(uint32_t worker, const lease::LeaseGrant& grant);
  void Send(uint32_t worker, const lease::LeaseGrant& grant);
  void ArmTick(absl::Duration due);
  void ExpireLeases();
  void Count(uint64_t messages);

  Run& run_;
  Learner& learner_;
  Fleet& fleet_;
  std::optional<lease::LeaseTable> table_;
  SerialServer server_{1};
  bool grant_armed_ = false;
  bool idle_wants_ = false;  // A worker without leases has joined the queue since the last help.
  double tick_at_ = std::numeric_limits<double>::infinity();  // The next tick.
  std::map<uint64_t, std::deque<uint32_t>> wanting_;          // By the step of their weights.
  absl::Status status_;
};

class Fleet {
 public:
  Fleet(Run& run, Learner& learner, Coordinator& coordinator);

  void Start();
  bool Stalled(const Event& event);  // True: the event was put off.
  void StartWorker(uint32_t index);
  void FetchPublished();
  void OnFetched(uint32_t index, uint64_t step);
  void OnApplied(uint32_t index);
  void Occupy(uint32_t index);  // Lets an idle worker take the next thing to do.
  void OnTakeBatch(uint32_t index);
  void OnBatchDone(uint32_t index);
  void OnScored(uint32_t index, HeldLease& held);
  void StartRenewing(uint32_t index);
  void OnRenew(uint32_t index);
  void OnWorkerDies(uint32_t index);
  void OnWorkerStalls(uint32_t index);
  void OnLearnerDies();
  void Forget(uint32_t index, LeaseId lease);   // It drops a lease.
  void Cancel(const lease::LeaseGrant& ended);  // Sampling that has begun goes on in vain.
  void Finish();                                // Completes its part of the outcome.

  Worker& operator[](uint32_t index) { return workers_[index]; }
  std::optional<uint32_t> Find(const std::string& name) const;  // Only workers that live.

 private:
  void StartFetch(uint32_t index, double seconds, bool from_learner);
  double ApplySeconds(uint32_t index) const;
  double BatchSeconds(const Worker& worker, const lease::LeaseGrant& first, uint64_t groups) const;
  void Abandon(uint32_t index, double& reason_s);  // It loses all it holds.

  Run& run_;
  Learner& learner_;
  Coordinator& coordinator_;
  const double renewal_s_;  // Between two renewals of a worker.
  std::vector<Worker> workers_;
  absl::flat_hash_map<std::string, uint32_t> by_name_;  // Workers that live.
  SerialServer rewards_;
  SerialServer ingest_;
};

}  // namespace oxbow::simulate
