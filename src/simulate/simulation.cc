// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulation.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "simulate/run_in_motion.h"

namespace oxbow::simulate {
namespace {

constexpr double kFull = 0.85;       // A server with this load sets the pace.
constexpr double kNearlyFull = 0.8;  // So does a learner with this share of work.
constexpr double kHalf = 0.5;

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

RunInMotion::RunInMotion(const RunModel& model)
    : model_(model),
      costs_(model_.costs),
      update_s_(UpdateSeconds(model_)),
      renewal_s_(absl::ToDoubleSeconds(lease::RenewalInterval(absl::Seconds(model_.lease_s)))),
      workers_(model_.workers),
      rewards_(model_.reward_servers),
      ingest_(costs_.learner_link_bytes_per_s > 0 ? model_.ranks : 0),
      coordinator_(1) {
  StartLeases();
}

double RunInMotion::Uniform(Purpose purpose, uint64_t subject, uint32_t count) const {
  return RandomStream({.seed = model_.seed, .group = subject, .sample = count, .step = purpose})
      .NextUniform();
}

double RunInMotion::Exponential(Purpose purpose, uint64_t subject, uint32_t count,
                                double per_hour) const {
  return -std::log1p(-Uniform(purpose, subject, count)) * 3600 / per_hour;
}

double RunInMotion::BatchSeconds(const Worker& worker, const lease::LeaseGrant& first,
                                 uint64_t groups) const {
  const double median = costs_.batch_s + costs_.group_s * static_cast<double>(groups);
  double factor = worker.factor;
  if (costs_.spread > 0 || costs_.straggler_share > 0) {
    // Keyed by the work, so that models that differ in one setting draw the same numbers.
    RandomStream random({.seed = model_.seed,
                         .group = first.group.value,
                         .sample = first.attempt + (epoch_ << 16),
                         .step = kDuration});
    factor *= std::exp(costs_.spread * random.NextNormal());
    if (random.NextUniform() < costs_.straggler_share) factor *= costs_.straggler_factor;
  }
  return median * factor;
}

void RunInMotion::Start() {
  for (uint32_t i = 0; i < model_.workers; ++i) {
    RandomStream random({.seed = model_.seed, .group = i, .sample = 0, .step = kSpeed});
    workers_[i].factor = std::exp(costs_.worker_spread * random.NextNormal());
    StartWorker(i);
  }
  OnLearnerStarts();
}

bool RunInMotion::Current(const Event& event) const {
  switch (event.kind) {
    case EventKind::kLearnerPhaseEnds:
    case EventKind::kLearnerDies:
    case EventKind::kLearnerStarts:
      return event.generation == epoch_;
    case EventKind::kRenew:
    case EventKind::kWorkerDies:
    case EventKind::kWorkerStarts:
    case EventKind::kWorkerStalls:
    case EventKind::kWorkerGoesOn:
      return event.generation == workers_[event.subject].life;
    case EventKind::kWeightsFetched:
    case EventKind::kWeightsApplied:
    case EventKind::kWeightsReported:
    case EventKind::kTakeBatch:
    case EventKind::kBatchDone:
      return event.generation == workers_[event.subject].token;
    default:
      return true;  // The coordinator's, or a lease's: their handlers look.
  }
}

void RunInMotion::Step() {
  const Event event = queue_.Next();
  if (Current(event) && !Stalled(event)) Handle(event);
}

void RunInMotion::Handle(const Event& event) {
  const uint32_t subject = event.subject;
  switch (event.kind) {
    case EventKind::kLearnerPhaseEnds:
      return OnPhaseEnds();
    case EventKind::kLearnerDies:
      return OnLearnerDies();
    case EventKind::kLearnerStarts:
      return OnLearnerStarts();
    case EventKind::kGrant:
      return OnGrant();
    case EventKind::kTick:
      return OnTick();
    case EventKind::kLeaseArrives:
    case EventKind::kGroupScored:
    case EventKind::kGroupDelivered:
    case EventKind::kLeaseFinished:
      return HandleLease(event);
    case EventKind::kRenew:
      return OnRenew(subject);
    case EventKind::kWeightsFetched:
      return OnFetched(subject, event.value);
    case EventKind::kWeightsApplied:
      return OnApplied(subject);
    case EventKind::kWeightsReported:
      return OnReported(subject, event.value);
    case EventKind::kTakeBatch:
      return OnTakeBatch(subject);
    case EventKind::kBatchDone:
      return OnBatchDone(subject);
    case EventKind::kWorkerDies:
      return OnWorkerDies(subject);
    case EventKind::kWorkerStarts:
      return StartWorker(subject);
    case EventKind::kWorkerStalls:
      return OnWorkerStalls(subject);
    case EventKind::kWorkerGoesOn:
      return RenewHeld(subject);
  }
}

void RunInMotion::HandleLease(const Event& event) {
  const uint32_t worker = event.subject;
  HeldLease* held = FindHeld(worker, LeaseId(event.value));
  if (held == nullptr) return;
  switch (event.kind) {
    case EventKind::kLeaseArrives:
      held->stage = HeldLease::Stage::kWaiting;
      return Occupy(worker);
    case EventKind::kGroupScored:
      return OnScored(worker, *held);
    case EventKind::kGroupDelivered:
      return OnDelivered(worker, *held);
    default:
      return OnFinished(worker, *held);
  }
}

Outcome RunInMotion::Finish() {
  Account();
  Outcome& o = outcome_;
  o.wall_s = now();
  o.steps = committed_;
  o.samples = committed_ * model_.groups_per_step * model_.group_size;
  for (const Worker& worker : workers_) {
    if (!worker.up) o.worker_down_s += now() - worker.down_since;
    // A batch was booked in full when it began.
    if (worker.sampling) {
      o.sampling_s -= worker.batch_ends - now();
      o.in_flight_s += now() - worker.batch_began;
    }
    for (const HeldLease& held : worker.held) {
      if (held.stage == HeldLease::Stage::kDelivering) o.in_flight_s += held.work_s;
    }
  }
  for (uint64_t step = committed_; step < steps_.size(); ++step) o.useful_s += steps_[step].work_s;
  o.staleness_mean = stale_groups_ == 0
                         ? 0
                         : static_cast<double>(staleness_sum_) / static_cast<double>(stale_groups_);
  o.leases.in_flight = table_->state().live.size();
  o.coordinator_busy_s = coordinator_.busy_s();
  o.reward_busy_s = rewards_.busy_s();
  o.ingest_busy_s = ingest_.busy_s();
  o.events = queue_.added();
  return o;
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
