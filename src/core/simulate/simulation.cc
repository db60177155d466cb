#include "core/simulate/simulation.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/philox.h"
#include "core/simulate/run_in_motion.h"

namespace oxbow::simulate {

RunInMotion::RunInMotion(const RunModel& model)
    : model_(model),
      costs_(model_.costs),
      update_s_(UpdateSeconds(model_)),
      book_({.staleness_max = model_.staleness_max, .groups_per_step = model_.groups_per_step},
            model_.speculation_quantile),
      workers_(model_.workers),
      rewards_(model_.reward_servers),
      ingest_(costs_.learner_link_bytes_per_s > 0 ? model_.ranks : 0),
      coordinator_(1) {}

double RunInMotion::Uniform(Purpose purpose, uint64_t subject, uint32_t count) const {
  return RandomStream({.seed = model_.seed, .group = subject, .sample = count, .step = purpose})
      .NextUniform();
}

double RunInMotion::Exponential(Purpose purpose, uint64_t subject, uint32_t count,
                                double per_hour) const {
  return -std::log1p(-Uniform(purpose, subject, count)) * 3600 / per_hour;
}

double RunInMotion::BatchSeconds(const Worker& worker, uint32_t first_lease, uint64_t groups) {
  const double median = costs_.batch_s + costs_.group_s * static_cast<double>(groups);
  double factor = worker.factor;
  if (costs_.spread > 0 || costs_.straggler_share > 0) {
    // Keyed by the work, so that models that differ in one setting meet the same luck.
    const uint64_t group = book_.at(first_lease).group;
    RandomStream random({.seed = model_.seed,
                         .group = group,
                         .sample = book_.attempts(group) + (epoch_ << 16),
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
    case EventKind::kGroupIsWarm:
      return event.generation == epoch_;
    case EventKind::kWorkerDies:
    case EventKind::kWorkerStarts:
    case EventKind::kWorkerStalls:
      return event.generation == workers_[event.subject].life;
    case EventKind::kWeightsFetched:
    case EventKind::kWeightsApplied:
    case EventKind::kWeightsReported:
    case EventKind::kTakeBatch:
    case EventKind::kBatchDone:
      return event.generation == workers_[event.subject].token;
    default:
      return true;  // Of the coordinator; leases are looked at by their handlers.
  }
}

void RunInMotion::Step() {
  const Event event = queue_.Next();
  if (!Current(event)) return;
  if (Stalled(event)) return;
  const uint32_t subject = event.subject;
  const auto at_worker = [&](void (RunInMotion::*handle)(uint32_t)) {
    Lease& lease = book_.at(subject);
    if (lease.generation == event.generation && lease.held) (this->*handle)(subject);
  };
  switch (event.kind) {
    case EventKind::kLearnerPhaseEnds:
      return OnPhaseEnds();
    case EventKind::kLearnerDies:
      return OnLearnerDies();
    case EventKind::kLearnerStarts:
      return OnLearnerStarts();
    case EventKind::kGrant:
      return OnGrant();
    case EventKind::kSpeculate:
      speculation_armed_ = false;
      return Arm();
    case EventKind::kGroupIsWarm:
      book_.Warm(event.value);
      return Arm();
    case EventKind::kLeaseArrives:
      if (Lease& lease = book_.at(subject); lease.generation == event.generation && lease.held) {
        lease.stage = Lease::Stage::kWaiting;
        Occupy(lease.worker);
      }
      return;
    case EventKind::kGroupScored:
      return at_worker(&RunInMotion::OnScored);
    case EventKind::kGroupDelivered:
      return at_worker(&RunInMotion::OnDelivered);
    case EventKind::kLeaseFinished:
      return at_worker(&RunInMotion::OnFinished);
    case EventKind::kLeaseExpires:
      if (book_.at(subject).generation == event.generation) OnExpires(subject);
      return;
    case EventKind::kWeightsFetched:
      return OnFetched(subject, event.value);
    case EventKind::kWeightsApplied:
      return OnApplied(subject);
    case EventKind::kWeightsReported:
      workers_[subject].reported = true;
      workers_[subject].reported_step = event.value;
      Count(1);
      return Want(subject);
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
    if (!worker.held.empty()) renewing_s_ += now() - worker.holding_since;
    // A batch ahead of its end was booked in full.
    if (worker.sampling) {
      o.sampling_s -= worker.batch_ends - now();
      o.in_flight_s += now() - worker.batch_began;
    }
    for (const uint32_t held : worker.held) {
      const Lease& lease = book_.at(held);
      if (lease.stage == Lease::Stage::kDelivering) o.in_flight_s += lease.work_s;
    }
  }
  for (uint64_t step = committed_; step < book_.planned_steps(); ++step) {
    book_.VisitStep(step, [&](double work_s, uint64_t) { o.useful_s += work_s; });
  }
  o.staleness_mean = stale_groups_ == 0
                         ? 0
                         : static_cast<double>(staleness_sum_) / static_cast<double>(stale_groups_);
  o.leases = book_.counts();
  const double renewals = renewing_s_ / (model_.lease_s / 3);  // One message for all of a worker.
  o.messages += static_cast<uint64_t>(renewals);
  o.coordinator_busy_s = coordinator_.busy_s() + renewals * costs_.message_s;
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
      return absl::OutOfRangeError(
          absl::StrCat("the run does not get on: failures may come faster than checkpoints, or "
                       "there is too much of everything; events simulated: ",
                       events_max));
    }
    run.Step();
  }
  return run.Finish();
}

}  // namespace oxbow::simulate
