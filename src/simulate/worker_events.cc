// SPDX-License-Identifier: Apache-2.0
// The workers of a simulated run, their rewards and the way of a group to the learner.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "simulate/run_in_motion.h"

namespace oxbow::simulate {
namespace {

uint64_t BatchMax(const RunModel& model) {
  return model.batch_groups_max > 0 ? model.batch_groups_max : model.groups_in_flight;
}

uint64_t CountOf(const Worker& worker, HeldLease::Stage stage) {
  return static_cast<uint64_t>(std::ranges::count(worker.held, stage, &HeldLease::stage));
}

}  // namespace

HeldLease* FindHeld(Worker& worker, LeaseId lease) {
  for (HeldLease& held : worker.held) {
    if (held.grant.id == lease) return &held;
  }
  return nullptr;
}

double Uniform(const RunModel& model, Purpose purpose, uint64_t subject, uint32_t count) {
  return RandomStream({.seed = model.seed, .group = subject, .sample = count, .step = purpose})
      .NextUniform();
}

double Exponential(const RunModel& model, Purpose purpose, uint64_t subject, uint32_t count,
                   double per_hour) {
  return -std::log1p(-Uniform(model, purpose, subject, count)) * 3600 / per_hour;
}

Fleet::Fleet(Run& run, Learner& learner, Coordinator& coordinator)
    : run_(run),
      learner_(learner),
      coordinator_(coordinator),
      renewal_s_(absl::ToDoubleSeconds(lease::RenewalInterval(absl::Seconds(run.model.lease_s)))),
      workers_(run.model.workers),
      rewards_(run.model.reward_servers),
      ingest_(run.model.costs.learner_link_bytes_per_s > 0 ? run.model.ranks : 0) {}

void Fleet::Start() {
  for (uint32_t i = 0; i < run_.model.workers; ++i) {
    RandomStream random({.seed = run_.model.seed, .group = i, .sample = 0, .step = kSpeed});
    workers_[i].factor = std::exp(run_.model.costs.worker_spread * random.NextNormal());
    StartWorker(i);
  }
}

std::optional<uint32_t> Fleet::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

bool Fleet::Stalled(const Event& event) {
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
  if (until <= run_.now()) return false;
  run_.queue.Add(event.kind, until, event.subject, event.generation, event.value);
  return true;
}

// The worker registers at the learner and asks it for the weights that are published already.
void Fleet::StartWorker(uint32_t index) {
  Worker& worker = workers_[index];
  if (!worker.up) run_.outcome.worker_down_s += run_.now() - worker.down_since;
  worker.up = true;
  worker.name = absl::StrCat(index, ".", worker.life);
  by_name_[worker.name] = index;
  if (run_.model.failures_per_hour > 0) {
    run_.queue.Add(EventKind::kWorkerDies,
                   run_.now() + Exponential(run_.model, kDeath, index, worker.life,
                                            run_.model.failures_per_hour),
                   index, worker.life);
  }
  if (run_.model.stalls_per_hour > 0) {
    run_.queue.Add(EventKind::kWorkerStalls,
                   run_.now() + Exponential(run_.model, kStall, index, worker.life << 16,
                                            run_.model.stalls_per_hour),
                   index, worker.life, 0);
  }
  if (learner_.published().has_value()) StartFetch(index, JoinSeconds(run_.model), true);
}

void Fleet::StartFetch(uint32_t index, double seconds, bool from_learner) {
  Worker& worker = workers_[index];
  worker.fetching = true;
  worker.from_learner = from_learner;
  run_.queue.Add(EventKind::kWeightsFetched, run_.now() + seconds, index, worker.token,
                 *learner_.published());
}

void Fleet::FetchPublished() {
  for (uint32_t i = 0; i < run_.model.workers; ++i) {
    if (workers_[i].up && !workers_[i].fetching) {
      StartFetch(i, FetchSeconds(run_.model, i), LearnerServes(run_.model, i));
    }
  }
}

void Fleet::OnFetched(uint32_t index, uint64_t step) {
  Worker& worker = workers_[index];
  if (worker.from_learner) run_.outcome.learner_egress_bytes += run_.model.costs.weight_bytes;
  worker.fetching = false;
  worker.fetched = true;
  worker.fetched_step = step;
  if (learner_.published() > step) {
    // Weights published meanwhile have reached the worker's relay; without relays all ask again.
    const double seconds =
        run_.model.weight_fanout == 0 ? FetchSeconds(run_.model, index) : JoinSeconds(run_.model);
    StartFetch(index, seconds, LearnerServes(run_.model, index));
  }
  Occupy(index);
}

double Fleet::ApplySeconds(uint32_t index) const {
  const Worker& worker = workers_[index];
  if (run_.model.costs.spread <= 0) return run_.model.costs.apply_s * worker.factor;
  RandomStream random({.seed = run_.model.seed,
                       .group = index,
                       .sample = static_cast<uint32_t>(worker.applying_step),
                       .step = kApplying});
  return run_.model.costs.apply_s * worker.factor *
         std::exp(run_.model.costs.spread * random.NextNormal());
}

void Fleet::OnApplied(uint32_t index) {
  Worker& worker = workers_[index];
  worker.applying = false;
  worker.has_weights = true;
  worker.weights_step = worker.applying_step;
  run_.queue.Add(EventKind::kWeightsReported, run_.now() + run_.model.costs.latency_s, index,
                 worker.token, worker.weights_step);
  Occupy(index);
}

void Fleet::Occupy(uint32_t index) {
  Worker& worker = workers_[index];
  if (!worker.up || worker.sampling || worker.applying || worker.taking) return;
  if (worker.fetched) {
    worker.fetched = false;
    worker.applying = true;
    worker.applying_step = worker.fetched_step;
    run_.queue.Add(EventKind::kWeightsApplied, run_.now() + ApplySeconds(index), index,
                   worker.token);
    return;
  }
  const uint64_t waiting = CountOf(worker, HeldLease::Stage::kWaiting);
  if (!worker.has_weights || waiting == 0) return;
  worker.taking = true;
  const double linger = waiting < BatchMax(run_.model) ? run_.model.costs.linger_s : 0;
  run_.queue.Add(EventKind::kTakeBatch, run_.now() + linger, index, worker.token);
}

double Fleet::BatchSeconds(const Worker& worker, const lease::LeaseGrant& first,
                           uint64_t groups) const {
  const double median =
      run_.model.costs.batch_s + run_.model.costs.group_s * static_cast<double>(groups);
  double factor = worker.factor;
  if (run_.model.costs.spread > 0 || run_.model.costs.straggler_share > 0) {
    // Keyed by the work, so that models that differ in one setting draw the same numbers.
    RandomStream random({.seed = run_.model.seed,
                         .group = first.group.value,
                         .sample = first.attempt + (learner_.epoch() << 16),
                         .step = kDuration});
    factor *= std::exp(run_.model.costs.spread * random.NextNormal());
    if (random.NextUniform() < run_.model.costs.straggler_share)
      factor *= run_.model.costs.straggler_factor;
  }
  return median * factor;
}

void Fleet::OnTakeBatch(uint32_t index) {
  Worker& worker = workers_[index];
  worker.taking = false;
  uint64_t groups = 0;
  const lease::LeaseGrant* first = nullptr;
  for (HeldLease& held : worker.held) {
    if (held.stage != HeldLease::Stage::kWaiting || groups == BatchMax(run_.model)) continue;
    held.stage = HeldLease::Stage::kSampling;
    held.sampled_step = worker.weights_step;
    if (groups++ == 0) first = &held.grant;
  }
  if (groups == 0) return Occupy(index);  // They were cancelled meanwhile.
  worker.sampling = true;
  worker.batch_began = run_.now();
  worker.batch_ends = run_.now() + BatchSeconds(worker, *first, groups);
  run_.outcome.sampling_s += worker.batch_ends - run_.now();
  run_.queue.Add(EventKind::kBatchDone, worker.batch_ends, index, worker.token);
}

void Fleet::OnBatchDone(uint32_t index) {
  Worker& worker = workers_[index];
  worker.sampling = false;
  const double groups = static_cast<double>(CountOf(worker, HeldLease::Stage::kSampling));
  for (HeldLease& held : worker.held) {
    if (held.stage != HeldLease::Stage::kSampling) continue;
    held.stage = HeldLease::Stage::kDelivering;
    held.work_s = (run_.now() - worker.batch_began) / groups;
    const double asked = run_.now() + run_.model.costs.latency_s;
    const double scored =
        rewards_.Serve(asked, run_.model.costs.reward_s) + run_.model.costs.reward_latency_s;
    run_.queue.Add(EventKind::kGroupScored, scored + run_.model.costs.latency_s, index, 0,
                   held.grant.id.value);
  }
  Occupy(index);
}

void Fleet::OnScored(uint32_t index, HeldLease& held) {
  const lease::LeaseGrant& grant = held.grant;
  const double fails = run_.model.group_failure_share;
  if (fails > 0 && coordinator_.table().Find(grant.id) != nullptr &&
      Uniform(run_.model, kGiveUp, grant.group.value, grant.attempt + (learner_.epoch() << 16)) <
          fails) {
    return coordinator_.OnFailed(index, held);
  }
  const double sent =
      run_.now() + Transfer(run_.model.costs.group_bytes, run_.model.costs.worker_link_bytes_per_s);
  const double taken = ingest_.Serve(
      sent, Transfer(run_.model.costs.group_bytes, run_.model.costs.learner_link_bytes_per_s));
  run_.queue.Add(EventKind::kGroupDelivered, taken + run_.model.costs.latency_s, index, 0,
                 held.grant.id.value);
}

void Fleet::Forget(uint32_t index, LeaseId lease) {
  std::erase_if(workers_[index].held,
                [&](const HeldLease& held) { return held.grant.id == lease; });
  coordinator_.Want(index);
}

void Fleet::Cancel(const lease::LeaseGrant& ended) {
  const std::optional<uint32_t> index = Find(ended.worker);
  if (!index.has_value()) return;
  const HeldLease* held = FindHeld(workers_[*index], ended.id);
  if (held != nullptr && held->stage < HeldLease::Stage::kSampling) Forget(*index, ended.id);
}

// A worker renews all its leases at once. Workers renew equally often, but each at its own moment.
void Fleet::StartRenewing(uint32_t index) {
  Worker& worker = workers_[index];
  if (std::exchange(worker.renewing, true)) return;
  const double phase = (index + 1.0) / run_.model.workers;
  double at = renewal_s_ * (std::floor(run_.now() / renewal_s_ - phase) + 1 + phase);
  if (at <= run_.now()) at += renewal_s_;
  run_.queue.Add(EventKind::kRenew, at, index, worker.life);
}

void Fleet::OnRenew(uint32_t index) {
  Worker& worker = workers_[index];
  worker.renewing = !worker.held.empty();
  if (!worker.renewing) return;
  run_.queue.AddInOrder(EventKind::kRenew, run_.now() + renewal_s_, index, worker.life);
  if (worker.stalled_until <= run_.now()) coordinator_.RenewHeld(index);
}

// Everything the worker holds is lost to it; groups that were accepted are not.
void Fleet::Abandon(uint32_t index, double& reason_s) {
  Worker& worker = workers_[index];
  if (worker.sampling) run_.outcome.sampling_s -= worker.batch_ends - run_.now();
  const double groups = static_cast<double>(CountOf(worker, HeldLease::Stage::kSampling));
  for (const HeldLease& held : worker.held) {
    if (held.stage == HeldLease::Stage::kSampling) {
      reason_s += (run_.now() - worker.batch_began) / groups;
    }
    // A result that arrived was booked then, as useful or as wasted.
    if (held.stage == HeldLease::Stage::kDelivering) reason_s += held.work_s;
  }
  worker.held.clear();
  worker.sampling = worker.taking = false;
  ++worker.token;
}

void Fleet::OnWorkerDies(uint32_t index) {
  Worker& worker = workers_[index];
  const bool silent = Uniform(run_.model, kSilence, index, worker.life) < run_.model.silent_share;
  if (!silent) coordinator_.OnStreamBreaks(worker);
  by_name_.erase(worker.name);
  Abandon(index, run_.outcome.discarded.death_s);
  ++run_.outcome.worker_deaths;
  ++worker.life;
  worker.up = worker.has_weights = worker.fetched = worker.fetching = worker.applying = false;
  worker.reported = worker.queued = worker.silent = worker.renewing = false;
  worker.stalled_until = 0;
  worker.down_since = run_.now();
  run_.queue.Add(EventKind::kWorkerStarts, run_.now() + run_.model.costs.worker_restart_s, index,
                 worker.life);
}

// The worker stands still and does not know: leases that it does not renew end, and their late
// results are fenced.
void Fleet::OnWorkerStalls(uint32_t index) {
  Worker& worker = workers_[index];
  worker.stalled_until = run_.now() + run_.model.stall_s;
  if (worker.sampling) {
    worker.batch_ends += run_.model.stall_s;
    run_.outcome.sampling_s += run_.model.stall_s;
  }
  run_.queue.Add(EventKind::kWorkerGoesOn, worker.stalled_until, index, worker.life);
  const uint32_t count = static_cast<uint32_t>(run_.now());  // Distinct: stalls do not overlap.
  run_.queue.Add(EventKind::kWorkerStalls,
                 worker.stalled_until + Exponential(run_.model, kStall, index,
                                                    (worker.life << 16) ^ (count + 1),
                                                    run_.model.stalls_per_hour),
                 index, worker.life);
}

// Its weights are of steps that are taken back.
void Fleet::OnLearnerDies() {
  for (uint32_t i = 0; i < run_.model.workers; ++i) {
    Worker& worker = workers_[i];
    Abandon(i, run_.outcome.discarded.restart_s);
    worker.has_weights = worker.fetched = worker.fetching = worker.applying = false;
    worker.reported = worker.queued = worker.silent = false;
  }
}

void Fleet::Finish() {
  Outcome& o = run_.outcome;
  for (const Worker& worker : workers_) {
    if (!worker.up) o.worker_down_s += run_.now() - worker.down_since;
    // A batch was booked in full when it began.
    if (worker.sampling) {
      o.sampling_s -= worker.batch_ends - run_.now();
      o.in_flight_s += run_.now() - worker.batch_began;
    }
    for (const HeldLease& held : worker.held) {
      if (held.stage == HeldLease::Stage::kDelivering) o.in_flight_s += held.work_s;
    }
  }
  o.reward_busy_s = rewards_.busy_s();
  o.ingest_busy_s = ingest_.busy_s();
}

}  // namespace oxbow::simulate
