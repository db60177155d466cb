// SPDX-License-Identifier: Apache-2.0
// Grants in a simulated run: which workers wait for leases, and which gets the next one. The lease
// table decides; the simulator adds when, and what the messages cost.
#include <algorithm>
#include <iterator>
#include <vector>

#include "simulate/run_in_motion.h"

namespace oxbow::simulate {

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
  Account();  // Groups may begin to run.
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
  outcome_.learner_egress_bytes += costs_.conditioning_bytes * costs_.conditioning_new_share;
  const double arrives = coordinator_.FreeAt(now()) + costs_.latency_s;
  queue_.Add(EventKind::kLeaseArrives, arrives, index, 0, grant.id.value);
  ArmTick(*table_->NextExpiry());
  StartRenewing(index);
}

}  // namespace oxbow::simulate
