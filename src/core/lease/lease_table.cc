// SPDX-License-Identifier: Apache-2.0
#include "core/lease/lease_table.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::lease {

void LeaseState::WarmUp(absl::Duration now) {
  for (auto it = cooling.begin(); it != cooling.end();) {
    if (it->second > now) {
      ++it;
      continue;
    }
    pending.insert(it->first);
    it = cooling.erase(it);
  }
}

LeaseGrant LeaseState::End(Leases::iterator lease) {
  LeaseGrant grant = std::move(lease->second.grant);
  const auto holder = live_by_worker.find(grant.worker);
  if (--holder->second == 0) live_by_worker.erase(holder);
  live.erase(lease);
  return grant;
}

bool LeaseState::Release(Leases::iterator lease) {
  const LeaseGrant grant = End(lease);
  Group& record = groups.at(grant.group.value);
  if (record.first == grant.id) record.first = record.second;
  record.second = LeaseId(0);
  if (record.first.value != 0) return false;
  running.erase({record.since, grant.group.value});
  return true;
}

LeaseTable::LeaseTable(Options options, const Clock& clock, const WorkerBook* workers)
    : options_(options),
      clock_(clock),
      workers_(workers),
      times_(options.stragglers),
      medians_({.quantile = options.ages.factor > 0 ? 0.5 : 0,
                .factor = options.ages.factor,
                .samples_min = options.ages.samples_min,
                .window = options.ages.window}) {
  OXBOW_CHECK(options_.groups_per_step > 0) << "groups per step";
  OXBOW_CHECK(options_.lease_time > absl::ZeroDuration()) << "lease time";
  state_.planned = options_.first_step.value * options_.groups_per_step;
  state_.accepted = state_.planned;
  state_.leases_granted = options_.first_lease;
}

void LeaseTable::Plan(LearnerStep step) {
  OXBOW_CHECK(step.value * options_.groups_per_step == state_.planned)
      << "steps are planned in order: " << step << " after " << state_.planned << " groups";
  state_.planned += options_.groups_per_step;
  Add(step, options_.groups_per_step);
}

// Adds groups under the step's next `count` ids.
void LeaseTable::Add(LearnerStep step, uint64_t count) {
  const uint64_t begin = step.value * stride();
  const auto from = state_.groups.lower_bound(begin);
  const auto to = state_.groups.lower_bound(begin + stride());
  const uint64_t next = begin + static_cast<uint64_t>(std::distance(from, to));
  OXBOW_CHECK(next + count <= begin + stride()) << "groups of step " << step << ": " << count;
  for (uint64_t group = next; group < next + count; ++group) {
    state_.groups.try_emplace(state_.groups.end(), group);
    state_.pending.insert(group);
  }
}

// The accepted count goes down, which makes room under the bound for the new groups. All earlier
// steps count in full, so an admitted worker has weights that are new enough for this step.
void LeaseTable::Refill(LearnerStep step, uint64_t count) {
  OXBOW_CHECK(count <= options_.groups_per_step && count <= state_.accepted)
      << count << " groups of step " << step;
  state_.accepted -= count;
  Add(step, count);
}

// Makes a new live lease. Requires a group that is not accepted and has at most one live lease.
LeaseGrant LeaseTable::Grant(uint64_t group, const std::string& worker, bool speculative) {
  LeaseState::Group& record = state_.groups.at(group);
  // With the epoch in the upper half, no id of an earlier start of the learner is ever valid.
  const LeaseId id((options_.epoch.value << 32) | ++state_.leases_granted);
  const absl::Duration now = clock_.Now();
  if (record.first.value == 0) {
    record.first = id;
    record.since = now;
    state_.running.emplace_hint(state_.running.end(), now, group);
  } else {
    record.second = id;
  }
  const LeaseGrant grant{.id = id,
                         .group = GroupId(group),
                         .step = StepOf(GroupId(group)),
                         .attempt = ++record.attempt,
                         .worker = worker,
                         .speculative = speculative};
  const absl::Duration deadline = now + options_.lease_time;
  state_.live.emplace(id.value, LeaseState::Live{grant, deadline, now});
  state_.checks.emplace(deadline, id.value);
  ++state_.live_by_worker[worker];
  return grant;
}

std::optional<LeaseGrant> LeaseTable::Acquire(const std::string& worker, LearnerStep weights_step,
                                              bool* kept) {
  state_.WarmUp(clock_.Now());
  // Accepted or under way. A cooling group keeps its place, and so does one that is passed over:
  // its index is below that of the group granted instead of it.
  uint64_t held = state_.accepted + state_.running.size() + state_.cooling.size();
  for (const uint64_t group : state_.pending) {
    const uint64_t bound =
        (options_.staleness_max + weights_step.value + 1) * options_.groups_per_step;
    if (held >= bound) return std::nullopt;
    if (MayTake(worker, group)) {
      state_.pending.erase(group);
      return Grant(group, worker, /*speculative=*/false);
    }
    ++held;
    if (kept != nullptr) *kept = true;
  }
  return std::nullopt;
}

bool LeaseTable::MayTake(const std::string& worker, uint64_t group) const {
  const LeaseState::Group& record = state_.groups.at(group);
  const auto& failed = record.failed_by;
  return std::ranges::find(failed, worker) == failed.end() || workers_ == nullptr ||
         clock_.Now() >= record.failed + options_.apart ||
         !workers_->AnotherMayTake(failed, state_.live_by_worker);
}

std::optional<LeaseGrant> LeaseTable::Speculate(const std::string& worker,
                                                LearnerStep weights_step) {
  const std::optional<absl::Duration> limit = times_.limit();
  if (!limit.has_value() || RunningOf(worker) > 0) return std::nullopt;
  const absl::Duration now = clock_.Now();
  for (const auto& [since, group] : state_.running) {
    if (now - since < *limit) break;
    LeaseState::Group& record = state_.groups.at(group);
    // The budget of its step alone: what is accepted or under way says nothing for it.
    const bool fresh = StepOf(GroupId(group)).value <= weights_step.value + options_.staleness_max;
    if (record.speculated || !fresh || !MayTake(worker, group)) continue;
    record.speculated = true;
    return Grant(group, worker, /*speculative=*/true);
  }
  return std::nullopt;
}

std::optional<absl::Duration> LeaseTable::NextStraggler() const {
  const std::optional<absl::Duration> limit = times_.limit();
  if (!limit.has_value()) return std::nullopt;
  for (const auto& [since, group] : state_.running) {
    if (!state_.groups.at(group).speculated) return since + *limit;
  }
  return std::nullopt;
}

bool LeaseTable::Renew(const std::string& worker, LeaseId lease, bool waits) {
  const auto live = state_.live.find(lease.value);
  if (live == state_.live.end() || live->second.grant.worker != worker) return false;
  if (live->second.deadline <= clock_.Now()) return false;
  const absl::Duration renewed = std::exchange(live->second.renewed, clock_.Now());
  if (waits) live->second.waited += clock_.Now() - renewed;
  absl::Duration until = clock_.Now() + options_.lease_time;
  if (const auto usual = medians_.limit(); usual.has_value()) {
    const AgeRule& rule = options_.ages;
    const uint32_t doublings = std::min(live->second.grant.attempt - 1, rule.doublings_max);
    const absl::Duration age_max =
        std::max(*usual, rule.floor * options_.lease_time) * (int64_t{1} << doublings);
    until = std::min(until, live->second.granted + live->second.waited + age_max);
  }
  live->second.deadline = std::max(live->second.deadline, until);
  return true;
}

AcceptOutcome LeaseTable::Accept(GroupId group, LeaseId lease,
                                 std::optional<LeaseGrant>* superseded) {
  const auto found = state_.groups.find(group.value);
  if (found == state_.groups.end() || lease.value == 0) return AcceptOutcome::kFenced;
  LeaseState::Group& record = found->second;
  if (lease != record.first && lease != record.second) return AcceptOutcome::kFenced;
  if (record.accepted) {
    return lease == record.first ? AcceptOutcome::kDuplicate : AcceptOutcome::kSuperseded;
  }
  const auto live = state_.live.find(lease.value);
  OXBOW_CHECK(live != state_.live.end())
      << "a group's lease lives until one is accepted: " << group;
  if (live->second.deadline <= clock_.Now()) return AcceptOutcome::kFenced;
  if (lease == record.second) std::swap(record.first, record.second);
  state_.End(live);
  if (record.second.value != 0) {
    const LeaseGrant other = state_.End(state_.live.find(record.second.value));
    if (superseded != nullptr) *superseded = other;
  }
  state_.running.erase({record.since, group.value});
  // Counted from its first lease: a straggler that a second lease finished is still a slow group.
  times_.Add(clock_.Now() - record.since);
  medians_.Add(clock_.Now() - record.since);
  record.accepted = true;
  ++state_.accepted;
  return AcceptOutcome::kAccepted;
}

bool LeaseTable::FailsRun(const LeaseState::Group& record) const {
  if (record.failures < options_.failures_max) return false;
  if (workers_ == nullptr) return true;
  const auto vouching = static_cast<uint64_t>(std::ranges::count_if(
      record.failed_by, [this](const std::string& worker) { return workers_->Vouches(worker); }));
  return vouching > 0 && vouching >= std::min(options_.failers_min, workers_->vouching());
}

absl::Status LeaseTable::Fail(LeaseId lease, const std::string& reason, Blame blame) {
  const auto live = state_.live.find(lease.value);
  if (live == state_.live.end()) return absl::OkStatus();
  const uint64_t group = live->second.grant.group.value;
  const std::string worker = live->second.grant.worker;
  LeaseState::Group& record = state_.groups.at(group);
  if (state_.Release(live)) {
    const uint32_t doublings = std::min(record.failures, 30u);
    const absl::Duration wait =
        std::min(options_.backoff_first * (int64_t{1} << doublings), options_.backoff_max);
    state_.cooling[group] = clock_.Now() + wait;
  }
  ++record.failures;
  record.failed = clock_.Now();
  auto& failers = record.failed_by;
  if (blame != Blame::kNobody && std::ranges::find(failers, worker) == failers.end())
    failers.push_back(worker);
  if (!FailsRun(record)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("group ", group, " failed ", record.failures,
                                             " times, last on worker ", worker, ": ", reason));
}

void LeaseTable::Depart(const std::string& worker, absl::Duration grace) {
  if (!state_.live_by_worker.contains(worker)) return;
  const absl::Duration end = clock_.Now() + grace;
  for (auto& [id, live] : state_.live) {
    if (live.grant.worker != worker || live.deadline <= end) continue;
    live.deadline = end;
    state_.checks.emplace(end, id);
  }
}

std::vector<LeaseGrant> LeaseTable::Expire() {
  const absl::Duration now = clock_.Now();
  std::vector<LeaseGrant> lost;
  while (!state_.checks.empty() && state_.checks.top().first <= now) {
    const uint64_t id = state_.checks.top().second;
    state_.checks.pop();
    const auto live = state_.live.find(id);
    if (live == state_.live.end()) continue;
    if (live->second.deadline > now) {
      state_.checks.emplace(live->second.deadline, id);  // It was renewed.
      continue;
    }
    lost.push_back(live->second.grant);
    if (state_.Release(live)) state_.pending.insert(lost.back().group.value);
  }
  return lost;
}

std::optional<absl::Duration> LeaseTable::NextExpiry() const {
  if (state_.live.empty()) return std::nullopt;
  return state_.checks.top().first;
}

void LeaseTable::Commit(LearnerStep step) {
  const uint64_t begin = step.value * stride();
  for (uint64_t i = 0; i < stride(); ++i) {
    const auto found = state_.groups.find(begin + i);
    const bool refill = i >= options_.groups_per_step;
    OXBOW_CHECK(found == state_.groups.end() ? refill : found->second.accepted)
        << "a committed step has all its groups: " << step << " group " << begin + i;
  }
  if (begin < stride()) return;
  state_.groups.erase(state_.groups.begin(), state_.groups.lower_bound(begin - stride()));
}

bool LeaseTable::Holds(const std::string& worker, LeaseId lease) const {
  const LeaseGrant* const live = Find(lease);
  return live != nullptr && live->worker == worker;
}

const LeaseGrant* LeaseTable::Find(LeaseId lease) const {
  const auto live = state_.live.find(lease.value);
  return live == state_.live.end() ? nullptr : &live->second.grant;
}

uint64_t LeaseTable::RunningOf(const std::string& worker) const {
  const auto found = state_.live_by_worker.find(worker);
  return found == state_.live_by_worker.end() ? 0 : found->second;
}

uint64_t LeaseTable::failures(GroupId group) const {
  const auto found = state_.groups.find(group.value);
  return found == state_.groups.end() ? 0 : found->second.failures;
}

}  // namespace oxbow::lease
