// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulation.h"

#include "absl/strings/str_cat.h"
#include "simulate/run_in_motion.h"

namespace oxbow::simulate {
namespace {

constexpr double kFull = 0.85;       // A server with this load sets the pace.
constexpr double kNearlyFull = 0.8;  // So does a learner with this share of work.
constexpr double kHalf = 0.5;

// A run between its first and its last event.
class RunInMotion {
 public:
  explicit RunInMotion(const RunModel& model) : run_{.model = model} {}

  void Start();
  void Step();  // The next event.
  bool done() const { return learner_.done(); }
  uint64_t events() const { return run_.queue.added(); }
  const absl::Status& status() const { return coordinator_.status(); }
  Outcome Finish();

 private:
  bool Current(const Event& event);
  void Handle(const Event& event);
  void HandleLease(const Event& event);

  Run run_;
  Learner learner_{run_, coordinator_, fleet_};
  Coordinator coordinator_{run_, learner_, fleet_};
  Fleet fleet_{run_, learner_, coordinator_};
};

void RunInMotion::Start() {
  fleet_.Start();
  learner_.OnStarts();
}

bool RunInMotion::Current(const Event& event) {
  switch (event.kind) {
    case EventKind::kLearnerPhaseEnds:
    case EventKind::kLearnerDies:
    case EventKind::kLearnerStarts:
      return event.generation == learner_.epoch();
    case EventKind::kRenew:
    case EventKind::kWorkerDies:
    case EventKind::kWorkerStarts:
    case EventKind::kWorkerStalls:
    case EventKind::kWorkerGoesOn:
      return event.generation == fleet_[event.subject].life;
    case EventKind::kWeightsFetched:
    case EventKind::kWeightsApplied:
    case EventKind::kWeightsReported:
    case EventKind::kTakeBatch:
    case EventKind::kBatchDone:
      return event.generation == fleet_[event.subject].token;
    default:
      return true;  // The coordinator's, or a lease's: their handlers look.
  }
}

void RunInMotion::Step() {
  const Event event = run_.queue.Next();
  if (Current(event) && !fleet_.Stalled(event)) Handle(event);
}

void RunInMotion::Handle(const Event& event) {
  const uint32_t subject = event.subject;
  switch (event.kind) {
    case EventKind::kLearnerPhaseEnds:
      return learner_.OnPhaseEnds();
    case EventKind::kLearnerDies:
      return learner_.OnDies();
    case EventKind::kLearnerStarts:
      return learner_.OnStarts();
    case EventKind::kGrant:
      return coordinator_.OnGrant();
    case EventKind::kTick:
      return coordinator_.OnTick();
    case EventKind::kLeaseArrives:
    case EventKind::kGroupScored:
    case EventKind::kGroupDelivered:
    case EventKind::kLeaseFinished:
      return HandleLease(event);
    case EventKind::kRenew:
      return fleet_.OnRenew(subject);
    case EventKind::kWeightsFetched:
      return fleet_.OnFetched(subject, event.value);
    case EventKind::kWeightsApplied:
      return fleet_.OnApplied(subject);
    case EventKind::kWeightsReported:
      return coordinator_.OnReported(subject, event.value);
    case EventKind::kTakeBatch:
      return fleet_.OnTakeBatch(subject);
    case EventKind::kBatchDone:
      return fleet_.OnBatchDone(subject);
    case EventKind::kWorkerDies:
      return fleet_.OnWorkerDies(subject);
    case EventKind::kWorkerStarts:
      return fleet_.StartWorker(subject);
    case EventKind::kWorkerStalls:
      return fleet_.OnWorkerStalls(subject);
    case EventKind::kWorkerGoesOn:
      return coordinator_.RenewHeld(subject);
  }
}

void RunInMotion::HandleLease(const Event& event) {
  const uint32_t worker = event.subject;
  HeldLease* held = FindHeld(fleet_[worker], LeaseId(event.value));
  if (held == nullptr) return;
  switch (event.kind) {
    case EventKind::kLeaseArrives:
      held->stage = HeldLease::Stage::kWaiting;
      return fleet_.Occupy(worker);
    case EventKind::kGroupScored:
      return fleet_.OnScored(worker, *held);
    case EventKind::kGroupDelivered:
      return coordinator_.OnDelivered(worker, *held);
    default:
      return coordinator_.OnFinished(worker, *held);
  }
}

Outcome RunInMotion::Finish() {
  learner_.Finish();
  fleet_.Finish();
  Outcome& o = run_.outcome;
  o.wall_s = run_.now();
  o.leases.in_flight = coordinator_.table().state().live.size();
  o.coordinator_busy_s = coordinator_.busy_s();
  o.events = run_.queue.added();
  return o;
}

}  // namespace

const char* LimitOf(const RunModel& model, const Outcome& outcome) {
  const LearnerTime& t = outcome.learner;
  const double wall = outcome.wall_s;
  if (t.update_s + t.publish_s + t.other_s > kNearlyFull * wall) return "the learner";
  const double waits = t.wait_rollouts_s + t.wait_weights_s;
  if (t.down_s + t.lost_s > waits) return "restarts of the learner";
  if (model.reward_servers > 0 && outcome.reward_busy_s > kFull * wall * model.reward_servers) {
    return "rewards";
  }
  if (outcome.ingest_busy_s > kFull * wall * model.ranks) return "ingest";
  if (outcome.coordinator_busy_s > kFull * wall) return "the coordinator";
  if (t.wait_weights_s > t.wait_rollouts_s) return "weights";
  if (outcome.sampling_s < kHalf * wall * model.workers) {
    // Most workers are idle: the staleness budget has fewer groups than workers have places, or a
    // few slow groups hold up the step.
    const uint64_t budget = model.groups_per_step * (model.staleness_max + 1);
    const uint64_t places = uint64_t{model.workers} * model.groups_in_flight;
    return budget < places ? "too few groups for the workers" : "the slowest groups of a step";
  }
  return "rollouts";
}

absl::StatusOr<Outcome> Simulate(const RunModel& model, uint64_t events_max) {
  if (absl::Status status = Validate(model); !status.ok()) return status;
  RunInMotion run(model);
  run.Start();
  while (!run.done()) {
    if (run.events() > events_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the run does not get on: failures may come faster than checkpoints, or "
                       "there is too much of everything; events simulated: ",
                       events_max));
    }
    run.Step();
    if (!run.status().ok()) return run.status();
  }
  return run.Finish();
}

}  // namespace oxbow::simulate
