// SPDX-License-Identifier: Apache-2.0
// The workers of a simulated run, their rewards and the way of a group to the learner.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "simulate/run_in_motion.h"

namespace oxbow::simulate {
bool RunInMotion::Stalled(const Event& event) {
  switch (event.kind) {
    case EventKind::kGroupScored:
    case EventKind::kWeightsApplied:
    case EventKind::kWeightsFetched:
    case EventKind::kTakeBatch:
    case EventKind::kBatchDone:
      break;
    default:
      return false;
  }
  const Worker& worker = workers_[event.subject];
  const double until =
      event.kind == EventKind::kBatchDone ? worker.batch_ends : worker.stalled_until;
  if (until <= now()) return false;
  queue_.Add(event.kind, until, event.subject, event.generation, event.value);
  return true;
}

// The worker registers at the learner and asks it for the weights that are published already.
void RunInMotion::StartWorker(uint32_t index) {
  Worker& worker = workers_[index];
  if (!worker.up) outcome_.worker_down_s += now() - worker.down_since;
  worker.up = true;
  worker.name = absl::StrCat(index, ".", worker.life);
  by_name_[worker.name] = index;
  if (model_.failures_per_hour > 0) {
    queue_.Add(EventKind::kWorkerDies,
               now() + Exponential(kDeath, index, worker.life, model_.failures_per_hour), index,
               worker.life);
  }
  if (model_.stalls_per_hour > 0) {
    queue_.Add(EventKind::kWorkerStalls,
               now() + Exponential(kStall, index, worker.life << 16, model_.stalls_per_hour), index,
               worker.life, 0);
  }
  if (published_) StartFetch(index, JoinSeconds(model_), true);
}

void RunInMotion::StartFetch(uint32_t index, double seconds, bool from_learner) {
  Worker& worker = workers_[index];
  worker.fetching = true;
  worker.from_learner = from_learner;
  queue_.Add(EventKind::kWeightsFetched, now() + seconds, index, worker.token, published_step_);
}

void RunInMotion::OnFetched(uint32_t index, uint64_t step) {
  Worker& worker = workers_[index];
  if (worker.from_learner) outcome_.learner_egress_bytes += costs_.weight_bytes;
  worker.fetching = false;
  worker.fetched = true;
  worker.fetched_step = step;
  if (published_step_ > step) {
    // Weights published meanwhile have reached the worker's relay; without relays all ask again.
    const double seconds =
        model_.weight_fanout == 0 ? FetchSeconds(model_, index) : JoinSeconds(model_);
    StartFetch(index, seconds, LearnerServes(model_, index));
  }
  Occupy(index);
}

double RunInMotion::ApplySeconds(uint32_t index) const {
  const Worker& worker = workers_[index];
  if (costs_.spread <= 0) return costs_.apply_s * worker.factor;
  RandomStream random({.seed = model_.seed,
                       .group = index,
                       .sample = static_cast<uint32_t>(worker.applying_step),
                       .step = kApplying});
  return costs_.apply_s * worker.factor * std::exp(costs_.spread * random.NextNormal());
}

void RunInMotion::OnApplied(uint32_t index) {
  Worker& worker = workers_[index];
  worker.applying = false;
  worker.has_weights = true;
  worker.weights_step = worker.applying_step;
  queue_.Add(EventKind::kWeightsReported, now() + costs_.latency_s, index, worker.token,
             worker.weights_step);
  Occupy(index);
}

uint64_t RunInMotion::BatchMax() const {
  return model_.batch_groups_max > 0 ? model_.batch_groups_max : model_.groups_in_flight;
}

uint64_t RunInMotion::Sampling(const Worker& worker) const {
  uint64_t sampling = 0;
  for (const HeldLease& held : worker.held) sampling += held.stage == HeldLease::Stage::kSampling;
  return sampling;
}

uint64_t RunInMotion::Waiting(const Worker& worker) const {
  uint64_t waiting = 0;
  for (const HeldLease& held : worker.held) waiting += held.stage == HeldLease::Stage::kWaiting;
  return waiting;
}

void RunInMotion::Occupy(uint32_t index) {
  Worker& worker = workers_[index];
  if (!worker.up || worker.sampling || worker.applying || worker.taking) return;
  if (worker.fetched) {
    worker.fetched = false;
    worker.applying = true;
    worker.applying_step = worker.fetched_step;
    queue_.Add(EventKind::kWeightsApplied, now() + ApplySeconds(index), index, worker.token);
    return;
  }
  const uint64_t waiting = Waiting(worker);
  if (!worker.has_weights || waiting == 0) return;
  worker.taking = true;
  const double linger = waiting < BatchMax() ? costs_.linger_s : 0;
  queue_.Add(EventKind::kTakeBatch, now() + linger, index, worker.token);
}

void RunInMotion::OnTakeBatch(uint32_t index) {
  Worker& worker = workers_[index];
  worker.taking = false;
  uint64_t groups = 0;
  const lease::LeaseGrant* first = nullptr;
  for (HeldLease& held : worker.held) {
    if (held.stage != HeldLease::Stage::kWaiting || groups == BatchMax()) continue;
    held.stage = HeldLease::Stage::kSampling;
    held.sampled_step = worker.weights_step;
    if (groups++ == 0) first = &held.grant;
  }
  if (groups == 0) return Occupy(index);  // They were cancelled meanwhile.
  worker.sampling = true;
  worker.batch_began = now();
  worker.batch_ends = now() + BatchSeconds(worker, *first, groups);
  outcome_.sampling_s += worker.batch_ends - now();
  queue_.Add(EventKind::kBatchDone, worker.batch_ends, index, worker.token);
}

void RunInMotion::OnBatchDone(uint32_t index) {
  Worker& worker = workers_[index];
  worker.sampling = false;
  const double groups = static_cast<double>(Sampling(worker));
  for (HeldLease& held : worker.held) {
    if (held.stage != HeldLease::Stage::kSampling) continue;
    held.stage = HeldLease::Stage::kDelivering;
    held.work_s = (now() - worker.batch_began) / groups;
    const double asked = now() + costs_.latency_s;
    const double scored = rewards_.Serve(asked, costs_.reward_s) + costs_.reward_latency_s;
    queue_.Add(EventKind::kGroupScored, scored + costs_.latency_s, index, 0, held.grant.id.value);
  }
  Occupy(index);
}

void RunInMotion::OnScored(uint32_t index, HeldLease& held) {
  if (Fails(held)) return OnFailed(index, held);
  const double sent = now() + Transfer(costs_.group_bytes, costs_.worker_link_bytes_per_s);
  const double taken =
      ingest_.Serve(sent, Transfer(costs_.group_bytes, costs_.learner_link_bytes_per_s));
  queue_.Add(EventKind::kGroupDelivered, taken + costs_.latency_s, index, 0, held.grant.id.value);
}

bool RunInMotion::Fails(const HeldLease& held) const {
  const lease::LeaseGrant& grant = held.grant;
  if (model_.group_failure_share <= 0 || table_->Find(grant.id) == nullptr) return false;
  return Uniform(kGiveUp, grant.group.value, grant.attempt + (epoch_ << 16)) <
         model_.group_failure_share;
}

RunInMotion::HeldLease* RunInMotion::FindHeld(uint32_t index, LeaseId lease) {
  for (HeldLease& held : workers_[index].held) {
    if (held.grant.id == lease) return &held;
  }
  return nullptr;
}

void RunInMotion::Forget(uint32_t index, LeaseId lease) {
  std::erase_if(workers_[index].held,
                [&](const HeldLease& held) { return held.grant.id == lease; });
  Want(index);
}

void RunInMotion::ForgetUntaken(uint32_t index, LeaseId lease) {
  const HeldLease* held = FindHeld(index, lease);
  if (held != nullptr && held->stage < HeldLease::Stage::kSampling) Forget(index, lease);
}

// Everything the worker holds is lost to it; groups that were accepted are not.
void RunInMotion::Abandon(uint32_t index, double& reason_s) {
  Worker& worker = workers_[index];
  if (worker.sampling) outcome_.sampling_s -= worker.batch_ends - now();
  const double groups = static_cast<double>(Sampling(worker));
  for (const HeldLease& held : worker.held) {
    if (held.stage == HeldLease::Stage::kSampling) {
      reason_s += (now() - worker.batch_began) / groups;
    }
    // A result that arrived was booked then, as useful or as wasted.
    if (held.stage == HeldLease::Stage::kDelivering) reason_s += held.work_s;
  }
  worker.held.clear();
  worker.sampling = worker.taking = false;
  ++worker.token;
}

void RunInMotion::OnWorkerDies(uint32_t index) {
  Worker& worker = workers_[index];
  const bool silent = Uniform(kSilence, index, worker.life) < model_.silent_share;
  // Without its stream the coordinator notices; a silent worker's leases have to expire.
  if (!silent) {
    table_->Depart(worker.name, lease::DepartureGrace(absl::Seconds(model_.lease_s)));
    if (const auto next = table_->NextExpiry(); next.has_value()) ArmTick(*next);
  }
  by_name_.erase(worker.name);
  Abandon(index, outcome_.discarded.death_s);
  ++outcome_.worker_deaths;
  ++worker.life;
  worker.up = worker.has_weights = worker.fetched = worker.fetching = worker.applying = false;
  worker.reported = worker.queued = worker.silent = worker.renewing = false;
  worker.stalled_until = 0;
  worker.down_since = now();
  queue_.Add(EventKind::kWorkerStarts, now() + costs_.worker_restart_s, index, worker.life);
}

// The worker stands still and does not know: leases that it does not renew end, and their late
// results are fenced.
void RunInMotion::OnWorkerStalls(uint32_t index) {
  Worker& worker = workers_[index];
  worker.stalled_until = now() + model_.stall_s;
  if (worker.sampling) {
    worker.batch_ends += model_.stall_s;
    outcome_.sampling_s += model_.stall_s;
  }
  queue_.Add(EventKind::kWorkerGoesOn, worker.stalled_until, index, worker.life);
  const uint32_t count = static_cast<uint32_t>(now());  // Distinct: stalls do not overlap.
  queue_.Add(EventKind::kWorkerStalls,
             worker.stalled_until + Exponential(kStall, index, (worker.life << 16) ^ (count + 1),
                                                model_.stalls_per_hour),
             index, worker.life);
}

}  // namespace oxbow::simulate
