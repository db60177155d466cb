// SPDX-License-Identifier: Apache-2.0
// The coordinator of a simulated run: which workers wait for leases and which gets the next one,
// renewals, results, failures, and what becomes possible by time alone. The lease table decides;
// the simulator adds when, and what the messages cost.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "simulate/run_in_motion.h"

namespace oxbow::simulate {
namespace {

// The coordinator looks at the clock this often.
constexpr double kTick_s = 0.05;

}  // namespace

Coordinator::Coordinator(Run& run, Learner& learner, Fleet& fleet)
    : run_(run), learner_(learner), fleet_(fleet) {
  Restart(Epoch(0), LearnerStep(0));
}

void Coordinator::Restart(Epoch epoch, LearnerStep checkpoint) {
  wanting_.clear();
  const RunModel& model = run_.model;
  table_.emplace(lease::LeaseTable::Options{.epoch = epoch,
                                            .first_step = checkpoint,
                                            .groups_per_step = model.groups_per_step,
                                            .staleness_max = model.staleness_max,
                                            .lease_time = absl::Seconds(model.lease_s),
                                            .stragglers = model.stragglers,
                                            .ages = model.ages},
                 run_.queue);
}

void Coordinator::Count(uint64_t messages) {
  run_.outcome.messages += messages;
  server_.Serve(run_.now(), static_cast<double>(messages) * run_.model.costs.message_s);
}

// Arms the first tick after `due`, and after this moment.
void Coordinator::ArmTick(absl::Duration due) {
  const double ticks = std::floor(std::max(absl::ToDoubleSeconds(due), run_.now()) / kTick_s);
  double at = kTick_s * (ticks + 1);
  if (at <= run_.now()) at += kTick_s;
  if (at >= tick_at_) return;
  tick_at_ = at;
  run_.queue.Add(EventKind::kTick, at);
}

// Does what became possible by time alone: overdue leases end, failed groups may be granted again,
// stragglers may be helped.
void Coordinator::OnTick() {
  if (run_.now() < tick_at_) return;  // An earlier tick took this one's place.
  tick_at_ = std::numeric_limits<double>::infinity();
  ExpireLeases();
  HelpStragglers();
  Arm();
  if (const auto next = table_->NextExpiry(); next.has_value()) ArmTick(*next);
  for (const auto& [group, until] : table_->state().cooling) {
    if (until > run_.queue.Now()) ArmTick(until);
  }
}

void Coordinator::ExpireLeases() {
  learner_.Account();
  for (const lease::LeaseGrant& lost : table_->Expire()) {
    ++run_.outcome.leases.expired;
    const std::optional<uint32_t> worker = fleet_.Find(lost.worker);
    if (!worker.has_value()) continue;
    fleet_[*worker].silent = true;
    fleet_[*worker].queued = false;
    fleet_.Cancel(lost);
  }
}

void Coordinator::RenewHeld(uint32_t index) {
  Worker& worker = fleet_[index];
  if (learner_.down()) return;
  Count(1);
  for (const HeldLease& held : worker.held) table_->Renew(worker.name, held.grant.id);
  if (!std::exchange(worker.silent, false)) return;
  Want(index);
}

// The worker has applied weights.
void Coordinator::OnReported(uint32_t index, uint64_t step) {
  Worker& worker = fleet_[index];
  worker.reported = true;
  worker.reported_step = step;
  worker.silent = false;
  Count(1);
  Want(index);
}

// The result of a lease has come.
void Coordinator::OnDelivered(uint32_t index, HeldLease& held) {
  held.stage = HeldLease::Stage::kDelivered;
  run_.outcome.ingest_bytes += run_.model.costs.group_bytes;
  Count(1);
  learner_.Account();  // The last running group may be done.
  const LeaseId id = held.grant.id;
  std::optional<lease::LeaseGrant> superseded;
  switch (table_->Accept(held.grant.group, id, &superseded)) {
    case lease::AcceptOutcome::kAccepted:
      learner_.Book(held);
      break;
    case lease::AcceptOutcome::kSuperseded:
      run_.outcome.discarded.duplicate_s += held.work_s;
      break;
    default:
      run_.outcome.discarded.expiry_s += held.work_s;
  }
  if (superseded.has_value()) {
    ++run_.outcome.leases.superseded;
    Count(1);
    fleet_.Cancel(*superseded);
  }
  learner_.Proceed();
  run_.queue.Add(EventKind::kLeaseFinished, run_.now() + 2 * run_.model.costs.latency_s, index, 0,
                 id.value);
}

// The leases of a worker whose stream broke end soon; a silent worker's have to expire.
void Coordinator::OnStreamBreaks(const Worker& worker) {
  table_->Depart(worker.name, lease::DepartureGrace(absl::Seconds(run_.model.lease_s)));
  if (const auto next = table_->NextExpiry(); next.has_value()) ArmTick(*next);
}

// The worker gives the group back.
void Coordinator::OnFailed(uint32_t index, HeldLease& held) {
  held.stage = HeldLease::Stage::kDelivered;
  run_.outcome.discarded.failure_s += held.work_s;
  ++run_.outcome.leases.failed;
  Count(1);
  learner_.Account();
  const uint64_t group = held.grant.group.value;
  status_.Update(table_->Fail(held.grant.id, "its rewards failed"));
  const auto& cooling = table_->state().cooling;
  if (const auto found = cooling.find(group); found != cooling.end()) ArmTick(found->second);
  run_.queue.Add(EventKind::kLeaseFinished, run_.now() + run_.model.costs.latency_s, index, 0,
                 held.grant.id.value);
}

// The coordinator hears that the worker has room.
void Coordinator::OnFinished(uint32_t index, const HeldLease& held) {
  Count(1);
  fleet_[index].silent = false;
  fleet_.Forget(index, held.grant.id);
}

void Coordinator::Want(uint32_t index) {
  Worker& worker = fleet_[index];
  if (!worker.up || !worker.reported || worker.silent) return;
  if (worker.held.size() >= run_.model.groups_in_flight) return;
  idle_wants_ |= worker.held.empty();
  if (worker.queued && worker.queued_step == worker.reported_step) return Arm();
  worker.queued = true;
  worker.queued_step = worker.reported_step;
  wanting_[worker.queued_step].push_back(index);
  Arm();
}

// The worker with the newest weights that waits longest: if it is not admitted, no worker is.
bool Coordinator::FindWanting(uint32_t& index) {
  while (!wanting_.empty()) {
    const auto newest = std::prev(wanting_.end());
    std::deque<uint32_t>& queue = newest->second;
    while (!queue.empty()) {
      index = queue.front();
      const Worker& worker = fleet_[index];
      if (worker.queued && worker.queued_step == newest->first) return true;
      queue.pop_front();
    }
    wanting_.erase(newest);
  }
  return false;
}

void Coordinator::Arm() {
  uint32_t index = 0;
  if (grant_armed_ || learner_.down() || !FindWanting(index)) return;
  if (table_->pending() == 0 && run_.model.stragglers.quantile <= 0) return;
  grant_armed_ = true;
  run_.queue.Add(EventKind::kGrant, server_.FreeAt(run_.now()));
}

void Coordinator::OnGrant() {
  grant_armed_ = false;
  uint32_t index = 0;
  if (learner_.down() || !FindWanting(index)) return;
  learner_.Account();  // Groups may begin to run.
  const Worker& worker = fleet_[index];
  const auto grant = table_->Acquire(worker.name, LearnerStep(worker.queued_step));
  if (!grant.has_value()) return ArmStraggler();
  Give(index, *grant);
  Arm();
}

// A straggler is helped when it becomes one, or later as soon as a worker becomes idle.
void Coordinator::ArmStraggler() {
  const std::optional<absl::Duration> next = table_->NextStraggler();
  if (next.has_value() && (*next > run_.queue.Now() || idle_wants_)) ArmTick(*next);
}

void Coordinator::HelpStragglers() {
  idle_wants_ = false;
  const auto due = [&] {
    const std::optional<absl::Duration> next = table_->NextStraggler();
    return next.has_value() && *next <= run_.queue.Now();
  };
  if (!due()) return;
  std::vector<uint32_t> idle;  // Newest weights first, then by waiting time.
  for (auto waiting = wanting_.rbegin(); waiting != wanting_.rend(); ++waiting) {
    for (const uint32_t index : waiting->second) {
      const Worker& worker = fleet_[index];
      if (worker.queued && worker.queued_step == waiting->first && worker.held.empty())
        idle.push_back(index);
    }
  }
  for (const uint32_t index : idle) {
    const Worker& worker = fleet_[index];
    const auto grant = table_->Speculate(worker.name, LearnerStep(worker.queued_step));
    if (grant.has_value()) Give(index, *grant);
    if (!due()) return;
  }
}

// Gives a lease to a waiting worker, which goes to the end of the queue if it has room for more.
void Coordinator::Give(uint32_t index, const lease::LeaseGrant& grant) {
  Worker& worker = fleet_[index];
  std::deque<uint32_t>& queue = wanting_[worker.queued_step];
  queue.erase(std::find(queue.begin(), queue.end(), index));
  worker.queued = false;
  Send(index, grant);
  Want(index);
}

void Coordinator::Send(uint32_t index, const lease::LeaseGrant& grant) {
  ++run_.outcome.leases.granted;
  if (grant.speculative) ++run_.outcome.leases.second;
  fleet_[index].held.push_back({.grant = grant});
  Count(1);
  run_.outcome.learner_egress_bytes +=
      run_.model.costs.conditioning_bytes * run_.model.costs.conditioning_new_share;
  const double arrives = server_.FreeAt(run_.now()) + run_.model.costs.latency_s;
  run_.queue.Add(EventKind::kLeaseArrives, arrives, index, 0, grant.id.value);
  ArmTick(*table_->NextExpiry());
  fleet_.StartRenewing(index);
}

}  // namespace oxbow::simulate
