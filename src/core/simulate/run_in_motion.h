// A simulated run between its first and its last event. `simulation.h` is the way in; this header
// is for the two halves of the events: the learner with its coordinator, and the workers.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "core/simulate/event_queue.h"
#include "core/simulate/lease_book.h"
#include "core/simulate/outcome.h"
#include "core/simulate/run_model.h"
#include "core/simulate/serial_server.h"

namespace oxbow::simulate {

class RunInMotion {
 public:
  explicit RunInMotion(const RunModel& model);

  void Start();
  void Step();  // The next event.
  bool done() const { return committed_ >= model_.steps && phase_ != Phase::kDown; }
  uint64_t events() const { return queue_.added(); }
  Outcome Finish();

 private:
  enum class Phase { kDown, kPublish, kPlan, kFinish, kWait, kUpdate };

  struct Worker {
    uint32_t life = 0;   // Deaths so far.
    uint32_t token = 0;  // Of its work; a death or a new epoch makes older events void.
    bool up = true;
    bool has_weights = false;
    bool fetched = false;  // Newer weights wait to be applied.
    bool fetching = false;
    bool from_learner = false;  // It fetches from the learner itself.
    bool applying = false;
    bool sampling = false;
    bool taking = false;        // A batch is about to be taken.
    bool queued = false;        // Among those who want leases.
    uint64_t weights_step = 0;  // L_V, applied.
    uint64_t fetched_step = 0;
    uint64_t applying_step = 0;
    uint64_t reported_step = 0;  // What the coordinator knows; valid once `reported`.
    bool reported = false;
    uint64_t queued_step = 0;
    double factor = 1;  // On all its sampling times.
    double stalled_until = 0;
    double batch_began = 0;
    double batch_ends = 0;
    double down_since = 0;
    double holding_since = 0;    // Has leases to renew.
    std::vector<uint32_t> held;  // Leases, in order of grant.
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
  double BatchSeconds(const Worker& worker, uint32_t first_lease, uint64_t groups);

  // The learner.
  void Account();  // Books the time since the last call.
  void Enter(Phase phase, double seconds);
  void OnPhaseEnds();
  void AfterPlan();
  void Proceed();  // Starts the update if the step is complete.
  void Commit();
  void Publish();
  void OnLearnerDies();
  void OnLearnerStarts();
  void ArmLearnerDeath();

  // The coordinator.
  void Want(uint32_t worker);  // Queues the worker if it has room.
  bool FindWanting(uint32_t& worker);
  void Arm();  // Sees to it that a grant is decided if one can be.
  void OnGrant();
  void Send(uint32_t lease);
  void ArmSpeculation();
  void OnDelivered(uint32_t lease);
  void OnExpires(uint32_t lease);
  void CancelAtWorker(uint32_t lease);
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
  void OnScored(uint32_t lease);
  void OnFinished(uint32_t lease);
  void OnWorkerDies(uint32_t index);
  void OnWorkerStalls(uint32_t index);
  void Abandon(uint32_t index, double& reason_s);  // It loses all it holds.
  void Forget(uint32_t lease);                     // The worker drops a lease.
  void Waste(const Lease& lease);
  double LastRenewal(const Lease& lease, double at) const;
  uint64_t Waiting(const Worker& worker) const;
  uint64_t BatchMax() const;

  bool Current(const Event& event) const;
  double now() const { return queue_.now(); }

  const RunModel model_;
  const Costs& costs_;
  const double update_s_;
  EventQueue queue_;
  LeaseBook book_;
  std::vector<Worker> workers_;
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
  bool speculation_armed_ = false;
  std::map<uint64_t, std::deque<uint32_t>> wanting_;  // By the step of their weights.

  Outcome outcome_;
  uint64_t staleness_sum_ = 0;
  uint64_t stale_groups_ = 0;
  double renewing_s_ = 0;  // Sum over workers of the time they hold leases.
};

}  // namespace oxbow::simulate
