// The workers of a simulated run, their rewards and the way of a group to the learner.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/philox.h"
#include "core/simulate/run_in_motion.h"

namespace oxbow::simulate {
namespace {

constexpr double kBackoffFirst_s = 1;  // Before a failed group is leased again; doubles.
constexpr double kBackoffMax_s = 10;

double Transfer(double bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? bytes / bytes_per_second : 0;
}

}  // namespace

bool RunInMotion::Stalled(const Event& event) {
  uint32_t worker = event.subject;
  switch (event.kind) {
    case EventKind::kGroupScored: {
      const Lease& lease = book_.at(event.subject);
      if (lease.generation != event.generation || !lease.held) return false;
      worker = lease.worker;
      break;
    }
    case EventKind::kWeightsApplied:
    case EventKind::kWeightsFetched:
    case EventKind::kTakeBatch:
    case EventKind::kBatchDone:
      break;
    default:
      return false;
  }
  double until = workers_[worker].stalled_until;
  if (event.kind == EventKind::kBatchDone) until = workers_[worker].batch_ends;
  if (until <= now()) return false;
  queue_.Add(event.kind, until, event.subject, event.generation, event.value);
  return true;
}

// Registers at the learner; weights that are published already it asks the learner for.
void RunInMotion::StartWorker(uint32_t index) {
  Worker& worker = workers_[index];
  if (!worker.up) outcome_.worker_down_s += now() - worker.down_since;
  worker.up = true;
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
    // What was published meanwhile has reached the relay above; without relays all ask again.
    const double seconds = model_.fan_out == 0 ? FetchSeconds(model_, index) : JoinSeconds(model_);
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

uint64_t RunInMotion::Waiting(const Worker& worker) const {
  uint64_t waiting = 0;
  for (const uint32_t lease : worker.held) {
    waiting += book_.at(lease).stage == Lease::Stage::kWaiting;
  }
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
  uint32_t first = kNoLease;
  for (const uint32_t held : worker.held) {
    Lease& lease = book_.at(held);
    if (lease.stage != Lease::Stage::kWaiting || groups == BatchMax()) continue;
    lease.stage = Lease::Stage::kSampling;
    lease.sampled_step = worker.weights_step;
    if (groups++ == 0) first = held;
  }
  if (groups == 0) return Occupy(index);  // They were cancelled meanwhile.
  worker.sampling = true;
  worker.batch_began = now();
  worker.batch_ends = now() + BatchSeconds(worker, first, groups);
  outcome_.sampling_s += worker.batch_ends - now();
  queue_.Add(EventKind::kBatchDone, worker.batch_ends, index, worker.token);
}

void RunInMotion::OnBatchDone(uint32_t index) {
  Worker& worker = workers_[index];
  worker.sampling = false;
  uint64_t groups = 0;
  for (const uint32_t held : worker.held) {
    groups += book_.at(held).stage == Lease::Stage::kSampling;
  }
  for (const uint32_t held : worker.held) {
    Lease& lease = book_.at(held);
    if (lease.stage != Lease::Stage::kSampling) continue;
    lease.stage = Lease::Stage::kDelivering;
    lease.work_s = (now() - worker.batch_began) / static_cast<double>(groups);
    const double asked = now() + costs_.latency_s;
    const double scored = rewards_.Serve(asked, costs_.reward_s) + costs_.reward_latency_s;
    queue_.Add(EventKind::kGroupScored, scored + costs_.latency_s, held, lease.generation);
  }
  Occupy(index);
}

void RunInMotion::OnScored(uint32_t index) {
  Lease& lease = book_.at(index);
  if (model_.group_failure_share > 0) {
    const uint32_t attempt = lease.live() ? book_.attempts(lease.group) : 0;
    const bool fails = lease.live() && Uniform(kGiveUp, lease.group, attempt + (epoch_ << 16)) <
                                           model_.group_failure_share;
    if (fails) {
      outcome_.discarded.failure_s += lease.work_s;
      lease.stage = Lease::Stage::kDelivered;
      Account();
      const uint64_t group = lease.group;
      Count(1);
      if (book_.Fail(index)) {
        const double doublings = std::min<double>(book_.failures(group) - 1, 4);
        queue_.Add(EventKind::kGroupIsWarm,
                   now() + std::min(kBackoffFirst_s * std::exp2(doublings), kBackoffMax_s), 0,
                   epoch_, group);
      }
      queue_.Add(EventKind::kLeaseFinished, now() + costs_.latency_s, index, lease.generation);
      return;
    }
  }
  const double sent = now() + Transfer(costs_.group_bytes, costs_.worker_link_bytes_per_s);
  const double taken =
      ingest_.Serve(sent, Transfer(costs_.group_bytes, costs_.learner_link_bytes_per_s));
  queue_.Add(EventKind::kGroupDelivered, taken + costs_.latency_s, index, lease.generation);
}

// The coordinator hears that the worker has room.
void RunInMotion::OnFinished(uint32_t index) {
  const uint32_t worker = book_.at(index).worker;
  Count(1);
  Forget(index);
  Want(worker);
}

void RunInMotion::Forget(uint32_t index) {
  const uint32_t owner = book_.at(index).worker;
  Worker& worker = workers_[owner];
  worker.held.erase(std::find(worker.held.begin(), worker.held.end(), index));
  if (worker.held.empty()) renewing_s_ += now() - worker.holding_since;
  book_.Drop(index);
  Want(owner);
}

// A result came for nothing.
void RunInMotion::Waste(const Lease& lease) {
  DiscardedTime& discarded = outcome_.discarded;
  (lease.end == LeaseEnd::kSuperseded ? discarded.duplicate_s : discarded.expiry_s) += lease.work_s;
}

double RunInMotion::LastRenewal(const Lease& lease, double at) const {
  const double interval = model_.lease_s / 3;
  return lease.granted_at + std::floor((at - lease.granted_at) / interval) * interval;
}

// Everything it holds is lost to it; groups that were accepted are not.
void RunInMotion::Abandon(uint32_t index, double& reason_s) {
  Worker& worker = workers_[index];
  if (worker.sampling) outcome_.sampling_s -= worker.batch_ends - now();
  double sampling = 0;
  for (const uint32_t held : worker.held) {
    sampling += book_.at(held).stage == Lease::Stage::kSampling;
  }
  for (const uint32_t held : worker.held) {
    const Lease& lease = book_.at(held);
    if (lease.stage == Lease::Stage::kSampling) reason_s += (now() - worker.batch_began) / sampling;
    // A result that arrived was booked then, as useful or as wasted.
    if (lease.stage == Lease::Stage::kDelivering) reason_s += lease.work_s;
    book_.Drop(held);
  }
  if (!worker.held.empty()) renewing_s_ += now() - worker.holding_since;
  worker.held.clear();
  worker.sampling = worker.taking = false;
  ++worker.token;
}

void RunInMotion::OnWorkerDies(uint32_t index) {
  Worker& worker = workers_[index];
  const bool silent = Uniform(kSilence, index, worker.life) < model_.silent_share;
  for (const uint32_t held : worker.held) {
    const Lease& lease = book_.at(held);
    if (!lease.live()) continue;
    double ends =
        std::max(now(), LastRenewal(lease, std::max(lease.granted_at, now())) + model_.lease_s);
    if (!silent) ends = std::min(ends, now() + model_.departure_grace_s);
    queue_.Add(EventKind::kLeaseExpires, ends, held, lease.generation);
  }
  Abandon(index, outcome_.discarded.death_s);
  ++outcome_.worker_deaths;
  ++worker.life;
  worker.up = worker.has_weights = worker.fetched = worker.fetching = worker.applying = false;
  worker.reported = worker.queued = false;
  worker.stalled_until = 0;
  worker.down_since = now();
  queue_.Add(EventKind::kWorkerStarts, now() + costs_.worker_restart_s, index, worker.life);
}

// It stands still and does not know: leases that are not renewed end, its late results are fenced.
void RunInMotion::OnWorkerStalls(uint32_t index) {
  Worker& worker = workers_[index];
  worker.stalled_until = now() + model_.stall_s;
  if (worker.sampling) {
    worker.batch_ends += model_.stall_s;
    outcome_.sampling_s += model_.stall_s;
  }
  for (const uint32_t held : worker.held) {
    const Lease& lease = book_.at(held);
    const double ends = LastRenewal(lease, now()) + model_.lease_s;
    if (!lease.live() || ends >= worker.stalled_until) continue;
    queue_.Add(EventKind::kLeaseExpires, std::max(ends, now()), held, lease.generation);
  }
  const uint32_t count = static_cast<uint32_t>(now());  // Distinct: stalls do not overlap.
  queue_.Add(EventKind::kWorkerStalls,
             worker.stalled_until + Exponential(kStall, index, (worker.life << 16) ^ (count + 1),
                                                model_.stalls_per_hour),
             index, worker.life);
}

}  // namespace oxbow::simulate
