// The coordinator in a simulated run: who waits for leases, who gets them, whose results count. The
// decisions are the lease table's; what is added is what messages cost.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "simulate/run_in_motion.h"

namespace oxbow::simulate {
namespace {

// The coordinator looks at the clock this often; something due is done at the next tick.
constexpr double kTick_s = 0.05;

double TickAfter(absl::Duration due) {
  return kTick_s * (std::floor(absl::ToDoubleSeconds(due) / kTick_s) + 1);
}

}  // namespace

void RunInMotion::Count(uint64_t messages) {
  outcome_.messages += messages;
  coordinator_.Serve(now(), static_cast<double>(messages) * costs_.message_s);
}

void RunInMotion::Want(uint32_t index) {
  Worker& worker = workers_[index];
  if (!worker.up || !worker.reported || worker.silent) return;
  if (worker.held.size() >= model_.groups_in_flight) return;
  idle_wants_ |= worker.held.empty();
  if (worker.queued && worker.queued_step == worker.reported_step) return Arm();
  worker.queued = true;
  worker.queued_step = worker.reported_step;
  wanting_[worker.queued_step].push_back(index);
  Arm();
}

// The worker with the newest weights that waits longest: if it is not admitted, no worker is.
bool RunInMotion::FindWanting(uint32_t& index) {
  while (!wanting_.empty()) {
    const auto newest = std::prev(wanting_.end());
    std::deque<uint32_t>& queue = newest->second;
    while (!queue.empty()) {
      index = queue.front();
      const Worker& worker = workers_[index];
      if (worker.queued && worker.queued_step == newest->first) return true;
      queue.pop_front();
    }
    wanting_.erase(newest);
  }
  return false;
}

void RunInMotion::Arm() {
  uint32_t index = 0;
  if (grant_armed_ || phase_ == Phase::kDown || !FindWanting(index)) return;
  if (table_->pending() == 0 && model_.stragglers.quantile <= 0) return;
  grant_armed_ = true;
  queue_.Add(EventKind::kGrant, coordinator_.FreeAt(now()));
}

void RunInMotion::OnGrant() {
  grant_armed_ = false;
  uint32_t index = 0;
  if (phase_ == Phase::kDown || !FindWanting(index)) return;
  const Worker& worker = workers_[index];
  const auto grant = table_->Acquire(worker.name, LearnerStep(worker.queued_step));
  if (!grant.has_value()) return ArmStraggler();
  Give(index, *grant);
  Arm();
}

// A straggler is helped when it becomes one, or later as soon as a worker becomes idle.
void RunInMotion::ArmStraggler() {
  const std::optional<absl::Duration> next = table_->NextStraggler();
  if (next.has_value() && (*next > queue_.Now() || idle_wants_)) ArmTick(*next);
}

void RunInMotion::HelpStragglers() {
  idle_wants_ = false;
  const auto due = [&] {
    const std::optional<absl::Duration> next = table_->NextStraggler();
    return next.has_value() && *next <= queue_.Now();
  };
  if (!due()) return;
  std::vector<uint32_t> idle;  // Newest weights first, then by waiting time.
  for (auto waiting = wanting_.rbegin(); waiting != wanting_.rend(); ++waiting) {
    for (const uint32_t index : waiting->second) {
      const Worker& worker = workers_[index];
      if (worker.queued && worker.queued_step == waiting->first && worker.held.empty())
        idle.push_back(index);
    }
  }
  for (const uint32_t index : idle) {
    const Worker& worker = workers_[index];
    const auto grant = table_->Speculate(worker.name, LearnerStep(worker.queued_step));
    if (grant.has_value()) Give(index, *grant);
    if (!due()) return;
  }
}

// Gives a lease to a waiting worker, which goes to the end of the queue if it has room for more.
void RunInMotion::Give(uint32_t index, const lease::LeaseGrant& grant) {
  Account();  // The first group may begin to run.
  Worker& worker = workers_[index];
  std::deque<uint32_t>& queue = wanting_[worker.queued_step];
  queue.erase(std::find(queue.begin(), queue.end(), index));
  worker.queued = false;
  Send(index, grant);
  Want(index);
}

void RunInMotion::Send(uint32_t index, const lease::LeaseGrant& grant) {
  ++outcome_.leases.granted;
  if (grant.speculative) ++outcome_.leases.second;
  workers_[index].held.push_back({.grant = grant});
  Count(1);
  const double arrives = coordinator_.FreeAt(now()) + costs_.latency_s;
  queue_.Add(EventKind::kLeaseArrives, arrives, index, 0, grant.id.value);
  ArmTick(*table_->NextExpiry());
}

void RunInMotion::ArmTick(absl::Duration due) {
  const double at = TickAfter(std::max(due, queue_.Now()));
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

// A worker renews all its leases at once, and says as often that it is there if it holds none.
void RunInMotion::OnRenew(uint32_t index) {
  queue_.AddInOrder(EventKind::kRenew, now() + renewal_s_, index, workers_[index].life);
  if (workers_[index].stalled_until <= now()) RenewHeld(index);
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
