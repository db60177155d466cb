// SPDX-License-Identifier: Apache-2.0
// The parts of a simulated run: the learner, its coordinator and the workers, each in a source of
// its own. They share the queue of events and the outcome, and call each other at one instant of
// virtual time. Callers use simulation.h.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/lease/lease_table.h"
#include "simulate/run_model.h"
#include "simulate/simulation.h"
#include "simulate/virtual_time.h"

namespace oxbow::simulate {

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
