// SPDX-License-Identifier: Apache-2.0
// The work of a simulated run's coordinator besides granting leases: it hears of renewals,
// results and failures, and does what becomes possible by time alone. The lease table decides.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "simulate/run_in_motion.h"

namespace oxbow::simulate {
namespace {

// The coordinator looks at the clock this often.
constexpr double kTick_s = 0.05;

}  // namespace

void RunInMotion::Count(uint64_t messages) {
  outcome_.messages += messages;
  coordinator_.Serve(now(), static_cast<double>(messages) * costs_.message_s);
}

// Arms the first tick after `due`, and after this moment.
void RunInMotion::ArmTick(absl::Duration due) {
  const double ticks = std::floor(std::max(absl::ToDoubleSeconds(due), now()) / kTick_s);
  double at = kTick_s * (ticks + 1);
  if (at <= now()) at += kTick_s;
  if (at >= tick_at_) return;
  tick_at_ = at;
  queue_.Add(EventKind::kTick, at);
}

// Does what became possible by time alone: overdue leases end, failed groups may be granted again,
// stragglers may be helped.
void RunInMotion::OnTick() {
  if (now() < tick_at_) return;  // An earlier tick took this one's place.
  tick_at_ = std::numeric_limits<double>::infinity();
  ExpireLeases();
  HelpStragglers();
  Arm();
  if (const auto next = table_->NextExpiry(); next.has_value()) ArmTick(*next);
  for (const auto& [group, until] : table_->state().cooling) {
    if (until > queue_.Now()) ArmTick(until);
  }
}

void RunInMotion::ExpireLeases() {
  Account();
  for (const lease::LeaseGrant& lost : table_->Expire()) {
    ++outcome_.leases.expired;
    const auto worker = by_name_.find(lost.worker);
    if (worker == by_name_.end()) continue;
    workers_[worker->second].silent = true;
    workers_[worker->second].queued = false;
    CancelAtWorker(lost);
  }
}

// Tells the worker of a lease that has ended. Sampling that has begun goes on in vain.
void RunInMotion::CancelAtWorker(const lease::LeaseGrant& grant) {
  const auto worker = by_name_.find(grant.worker);
  if (worker != by_name_.end()) ForgetUntaken(worker->second, grant.id);
}

// A worker renews all its leases at once. Workers renew equally often, but each at its own moment.
void RunInMotion::StartRenewing(uint32_t index) {
  Worker& worker = workers_[index];
  if (std::exchange(worker.renewing, true)) return;
  const double phase = (index + 1.0) / model_.workers;
  double at = renewal_s_ * (std::floor(now() / renewal_s_ - phase) + 1 + phase);
  if (at <= now()) at += renewal_s_;
  queue_.Add(EventKind::kRenew, at, index, worker.life);
}

void RunInMotion::OnRenew(uint32_t index) {
  Worker& worker = workers_[index];
  worker.renewing = !worker.held.empty();
  if (!worker.renewing) return;
  queue_.AddInOrder(EventKind::kRenew, now() + renewal_s_, index, worker.life);
  if (worker.stalled_until <= now()) RenewHeld(index);
}

void RunInMotion::RenewHeld(uint32_t index) {
  Worker& worker = workers_[index];
  if (phase_ == Phase::kDown) return;
  Count(1);
  for (const HeldLease& held : worker.held) table_->Renew(worker.name, held.grant.id);
  if (!std::exchange(worker.silent, false)) return;
  Want(index);
}

// The worker has applied weights.
void RunInMotion::OnReported(uint32_t index, uint64_t step) {
  Worker& worker = workers_[index];
  worker.reported = true;
  worker.reported_step = step;
  worker.silent = false;
  Count(1);
  Want(index);
}

// The result of a lease has come.
void RunInMotion::OnDelivered(uint32_t index, HeldLease& held) {
  held.stage = HeldLease::Stage::kDelivered;
  outcome_.ingest_bytes += costs_.group_bytes;
  Count(1);
  Account();  // The last running group may be done.
  const LeaseId id = held.grant.id;
  std::optional<lease::LeaseGrant> superseded;
  switch (table_->Accept(held.grant.group, id, &superseded)) {
    case lease::AcceptOutcome::kAccepted:
      Book(held);
      break;
    case lease::AcceptOutcome::kSuperseded:
      outcome_.discarded.duplicate_s += held.work_s;
      break;
    default:
      outcome_.discarded.expiry_s += held.work_s;
  }
  if (superseded.has_value()) {
    ++outcome_.leases.superseded;
    Count(1);
    CancelAtWorker(*superseded);
  }
  Proceed();
  queue_.Add(EventKind::kLeaseFinished, now() + 2 * costs_.latency_s, index, 0, id.value);
}

void RunInMotion::Book(const HeldLease& held) {
  ++outcome_.leases.accepted;
  const uint64_t step = held.grant.step.value;
  const uint64_t staleness = step > held.sampled_step ? step - held.sampled_step : 0;
  StepWork& work = steps_[step];
  ++work.accepted;
  work.work_s += held.work_s;
  work.staleness_sum += staleness;
  work.staleness_max = std::max(work.staleness_max, staleness);
}

// The worker gives the group back.
void RunInMotion::OnFailed(uint32_t index, HeldLease& held) {
  held.stage = HeldLease::Stage::kDelivered;
  outcome_.discarded.failure_s += held.work_s;
  ++outcome_.leases.failed;
  Count(1);
  Account();
  const uint64_t group = held.grant.group.value;
  status_.Update(table_->Fail(held.grant.id, "its rewards failed"));
  const auto& cooling = table_->state().cooling;
  if (const auto found = cooling.find(group); found != cooling.end()) ArmTick(found->second);
  queue_.Add(EventKind::kLeaseFinished, now() + costs_.latency_s, index, 0, held.grant.id.value);
}

// The coordinator hears that the worker has room.
void RunInMotion::OnFinished(uint32_t index, const HeldLease& held) {
  Count(1);
  workers_[index].silent = false;
  Forget(index, held.grant.id);
}

}  // namespace oxbow::simulate
