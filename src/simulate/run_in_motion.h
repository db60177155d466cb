// SPDX-License-Identifier: Apache-2.0
// A simulated run between its first and its last event. Callers use simulation.h; this header is
// for the files of event handlers: the learner's, the coordinator's with its grants, the workers'.
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

class RunInMotion {
 public:
  explicit RunInMotion(const RunModel& model);

  void Start();
  void Step();  // The next event.
  bool done() const { return committed_ >= model_.steps && phase_ != Phase::kDown; }
  uint64_t events() const { return queue_.added(); }
  const absl::Status& status() const { return status_; }  // Not OK: a real run would have ended.
  Outcome Finish();

 private:
  enum class Phase { kDown, kPublish, kPlan, kFinish, kWait, kUpdate };

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

  // Sums over the accepted groups of one learner step.
  struct StepWork {
    uint64_t accepted = 0;
    double work_s = 0;  // Sampling time.
    uint64_t staleness_sum = 0;
    uint64_t staleness_max = 0;
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
  double Uniform(Purpose purpose, uint64_t subject, uint32_t count) const;
  double Exponential(Purpose purpose, uint64_t subject, uint32_t count, double per_hour) const;
  double BatchSeconds(const Worker& worker, const lease::LeaseGrant& first, uint64_t groups) const;

  // The learner.
  void Account();  // Books the time since the last call.
  void Enter(Phase phase, double seconds);
  void OnPhaseEnds();
  void AfterPlan();
  void Proceed();  // Starts the update if the step is complete.
  void Commit();
  void Publish();
  void OnLearnerDies();
  void TakeBackUncheckpointed();
  void OnLearnerStarts();
  void ArmLearnerDeath();
  void StartLeases();  // A table of the current epoch, after the checkpointed steps.

  // The coordinator's grants.
  void Want(uint32_t worker);  // Queues the worker if it has room.
  bool FindWanting(uint32_t& worker);
  void Arm();  // Makes sure that a grant is tried if there may be one.
  void OnGrant();
  void ArmStraggler();
  void HelpStragglers();
  void Give(uint32_t worker, const lease::LeaseGrant& grant);
  void Send(uint32_t worker, const lease::LeaseGrant& grant);

  // The rest of the coordinator.
  void ArmTick(absl::Duration due);
  void OnReported(uint32_t worker, uint64_t step);
  void OnTick();
  void ExpireLeases();
  void StartRenewing(uint32_t worker);
  void OnRenew(uint32_t worker);
  void RenewHeld(uint32_t worker);
  void OnDelivered(uint32_t worker, HeldLease& held);
  void OnFailed(uint32_t worker, HeldLease& held);
  void OnFinished(uint32_t worker, const HeldLease& held);
  void Book(const HeldLease& held);  // An accepted result.
  void CancelAtWorker(const lease::LeaseGrant& grant);
  void Count(uint64_t messages);

  // Workers.
  bool Stalled(const Event& event);  // True: the event was put off.
  void StartWorker(uint32_t index);
  void StartFetch(uint32_t index, double seconds, bool from_learner);
  void OnFetched(uint32_t index, uint64_t step);
  double ApplySeconds(uint32_t index) const;
  void OnApplied(uint32_t index);
  void Occupy(uint32_t index);  // Lets an idle worker take the next thing to do.
  void OnTakeBatch(uint32_t index);
  void OnBatchDone(uint32_t index);
  void OnScored(uint32_t index, HeldLease& held);
  bool Fails(const HeldLease& held) const;
  void OnWorkerDies(uint32_t index);
  void OnWorkerStalls(uint32_t index);
  void Abandon(uint32_t index, double& reason_s);  // It loses all it holds.
  void Forget(uint32_t index, LeaseId lease);      // It drops a lease.
  void ForgetUntaken(uint32_t index, LeaseId lease);
  HeldLease* FindHeld(uint32_t index, LeaseId lease);  // Null: it holds no such lease.
  uint64_t Waiting(const Worker& worker) const;        // Leases.
  uint64_t Sampling(const Worker& worker) const;       // Leases.
  uint64_t BatchMax() const;

  bool Current(const Event& event) const;
  void Handle(const Event& event);
  void HandleLease(const Event& event);
  double now() const { return queue_.seconds(); }

  const RunModel model_;
  const Costs& costs_;
  const double update_s_;
  const double renewal_s_;  // Between two renewals of a worker.
  EventQueue queue_;
  std::optional<lease::LeaseTable> table_;
  std::vector<StepWork> steps_;  // By learner step, as far as planned.
  std::vector<Worker> workers_;
  absl::flat_hash_map<std::string, uint32_t> by_name_;  // Workers that live.
  SerialServer rewards_;
  SerialServer ingest_;
  SerialServer coordinator_;

  Phase phase_ = Phase::kDown;
  uint32_t epoch_ = 0;
  uint64_t committed_ = 0;
  uint64_t checkpoint_ = 0;  // Steps in the newest checkpoint.
  double phase_began_ = 0;
  double accounted_until_ = 0;

  bool published_ = false;
  uint64_t published_step_ = 0;
  bool grant_armed_ = false;
  bool idle_wants_ = false;  // A worker without leases has joined the queue since the last help.
  double tick_at_ = std::numeric_limits<double>::infinity();  // The next tick.
  std::map<uint64_t, std::deque<uint32_t>> wanting_;          // By the step of their weights.

  absl::Status status_;
  Outcome outcome_;
  uint64_t staleness_sum_ = 0;
  uint64_t stale_groups_ = 0;
};

}  // namespace oxbow::simulate
