#include "services/learner/desk/lease_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "core/replay/admission.h"

namespace oxbow::learner {

LeaseTable::LeaseTable(Options options, const Clock& clock)
    : options_(options), clock_(clock), times_(options.stragglers) {
  OXBOW_CHECK(options_.groups_per_step > 0) << "groups per step";
  OXBOW_CHECK(options_.lease_time > absl::ZeroDuration()) << "lease time";
  book_.planned = options_.first_step.value * options_.groups_per_step;
  book_.accepted = book_.planned;
}

void LeaseTable::Plan(LearnerStep step) {
  OXBOW_CHECK(step.value * options_.groups_per_step == book_.planned)
      << "steps are planned in order: " << step << " after " << book_.planned << " groups";
  book_.planned += options_.groups_per_step;
  Add(step, options_.groups_per_step);
}

// The step's next `count` ids.
void LeaseTable::Add(LearnerStep step, uint64_t count) {
  const uint64_t begin = step.value * stride();
  const auto from = book_.groups.lower_bound(begin);
  const auto to = book_.groups.lower_bound(begin + stride());
  const uint64_t next = begin + static_cast<uint64_t>(std::distance(from, to));
  OXBOW_CHECK(next + count <= begin + stride()) << "groups of step " << step << ": " << count;
  for (uint64_t group = next; group < next + count; ++group) {
    book_.groups[group];
    book_.pending.insert(group);
  }
}

// What is accepted goes down, so that the bound has room for them: all earlier steps count whole,
// so a worker that is admitted has weights that are new enough for this one.
void LeaseTable::Refill(LearnerStep step, uint64_t count) {
  OXBOW_CHECK(count <= options_.groups_per_step && count <= book_.accepted)
      << count << " groups of step " << step;
  book_.accepted -= count;
  Add(step, count);
}

bool LeaseTable::Admits(LearnerStep weights_step) const {
  // Groups that cool down hold their place: they are below what would be granted instead of them.
  const uint64_t held = book_.accepted + book_.running.size() + book_.cooling.size();
  const replay::AdmissionRule rule{.staleness_max = options_.staleness_max,
                                   .groups_per_step = options_.groups_per_step};
  return replay::Admits(rule, weights_step.value, held);
}

void LeaseTable::WarmUp() {
  const absl::Duration now = clock_.Now();
  for (auto it = book_.cooling.begin(); it != book_.cooling.end();) {
    if (it->second > now) {
      ++it;
      continue;
    }
    book_.pending.insert(it->first);
    it = book_.cooling.erase(it);
  }
}

// A new live lease of a group that is not accepted and has at most one.
LeaseGrant LeaseTable::Grant(uint64_t group, const std::string& worker, bool speculative) {
  LeaseBook::Group& record = book_.groups.at(group);
  // The epoch in the upper half keeps ids of an earlier start of the learner from meaning anything.
  const LeaseId id((options_.epoch.value << 32) | ++book_.leases_granted);
  const absl::Duration now = clock_.Now();
  if (record.first.value == 0) {
    record.first = id;
    record.since = now;
    book_.running.emplace(now, group);
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
  book_.live.emplace(id.value, LeaseBook::Live{grant, deadline});
  book_.deadlines.emplace(deadline, id.value);
  ++book_.holders[worker];
  return grant;
}

std::optional<LeaseGrant> LeaseTable::Acquire(const std::string& worker, LearnerStep weights_step) {
  WarmUp();
  if (book_.pending.empty() || !Admits(weights_step)) return std::nullopt;
  const uint64_t group = *book_.pending.begin();
  book_.pending.erase(book_.pending.begin());
  return Grant(group, worker, /*speculative=*/false);
}

std::optional<LeaseGrant> LeaseTable::Speculate(const std::string& worker,
                                                LearnerStep weights_step) {
  const std::optional<absl::Duration> limit = times_.limit();
  if (!limit.has_value() || RunningOf(worker) > 0) return std::nullopt;
  const replay::AdmissionRule rule{.staleness_max = options_.staleness_max,
                                   .groups_per_step = options_.groups_per_step};
  const absl::Duration now = clock_.Now();
  for (const auto& [since, group] : book_.running) {
    if (now - since < *limit) break;
    LeaseBook::Group& record = book_.groups.at(group);
    const uint64_t first_of_step = StepOf(GroupId(group)).value * options_.groups_per_step;
    if (record.speculated || !replay::Serves(rule, weights_step.value, first_of_step)) continue;
    record.speculated = true;
    return Grant(group, worker, /*speculative=*/true);
  }
  return std::nullopt;
}

void LeaseTable::MoveDeadline(LiveLease live, absl::Duration deadline) {
  book_.deadlines.erase({live->second.deadline, live->first});
  live->second.deadline = deadline;
  book_.deadlines.emplace(deadline, live->first);
}

bool LeaseTable::Renew(const std::string& worker, LeaseId lease) {
  const auto live = book_.live.find(lease.value);
  if (live == book_.live.end() || live->second.grant.worker != worker) return false;
  if (live->second.deadline <= clock_.Now()) return false;
  MoveDeadline(live, clock_.Now() + options_.lease_time);
  return true;
}

// The lease lives no more; its group's record is the caller's to put right.
LeaseGrant LeaseTable::End(LiveLease live) {
  LeaseGrant grant = std::move(live->second.grant);
  book_.deadlines.erase({live->second.deadline, live->first});
  const auto holder = book_.holders.find(grant.worker);
  if (--holder->second == 0) book_.holders.erase(holder);
  book_.live.erase(live);
  return grant;
}

AcceptOutcome LeaseTable::Accept(GroupId group, LeaseId lease,
                                 std::optional<LeaseGrant>* superseded) {
  const auto found = book_.groups.find(group.value);
  if (found == book_.groups.end() || lease.value == 0) return AcceptOutcome::kFenced;
  LeaseBook::Group& record = found->second;
  if (lease != record.first && lease != record.second) return AcceptOutcome::kFenced;
  if (record.accepted) {
    return lease == record.first ? AcceptOutcome::kDuplicate : AcceptOutcome::kSuperseded;
  }
  const auto live = book_.live.find(lease.value);
  OXBOW_CHECK(live != book_.live.end()) << "a group's lease lives until one is accepted: " << group;
  if (live->second.deadline <= clock_.Now()) return AcceptOutcome::kFenced;
  if (lease == record.second) std::swap(record.first, record.second);
  End(live);
  if (record.second.value != 0) {
    const LeaseGrant other = End(book_.live.find(record.second.value));
    if (superseded != nullptr) *superseded = other;
  }
  book_.running.erase({record.since, group.value});
  // From the first of its leases on: a straggler that was helped out is still a slow group.
  times_.Add(clock_.Now() - record.since);
  record.accepted = true;
  ++book_.accepted;
  return AcceptOutcome::kAccepted;
}

// Ends a lease without a result; its id never comes back. True if its group has no other.
bool LeaseTable::Release(LiveLease live) {
  const LeaseGrant grant = End(live);
  LeaseBook::Group& record = book_.groups.at(grant.group.value);
  if (record.first == grant.id) record.first = record.second;
  record.second = LeaseId(0);
  if (record.first.value != 0) return false;
  book_.running.erase({record.since, grant.group.value});
  return true;
}

absl::Status LeaseTable::Fail(LeaseId lease, const std::string& reason) {
  const auto live = book_.live.find(lease.value);
  if (live == book_.live.end()) return absl::OkStatus();
  const uint64_t group = live->second.grant.group.value;
  const std::string worker = live->second.grant.worker;
  LeaseBook::Group& record = book_.groups.at(group);
  if (Release(live)) {
    const uint32_t doublings = std::min(record.failures, 30u);
    const absl::Duration wait =
        std::min(options_.backoff_first * (int64_t{1} << doublings), options_.backoff_max);
    book_.cooling[group] = clock_.Now() + wait;
  }
  if (++record.failures < options_.failures_max) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("group ", group, " failed ", record.failures,
                                             " times, last on worker ", worker, ": ", reason));
}

void LeaseTable::Depart(const std::string& worker, absl::Duration grace) {
  if (!book_.holders.contains(worker)) return;
  const absl::Duration end = clock_.Now() + grace;
  for (auto live = book_.live.begin(); live != book_.live.end(); ++live) {
    if (live->second.grant.worker == worker && live->second.deadline > end) MoveDeadline(live, end);
  }
}

std::vector<LeaseGrant> LeaseTable::Expire() {
  const absl::Duration now = clock_.Now();
  std::vector<LeaseGrant> lost;
  while (!book_.deadlines.empty() && book_.deadlines.begin()->first <= now) {
    const auto live = book_.live.find(book_.deadlines.begin()->second);
    lost.push_back(live->second.grant);
    if (Release(live)) book_.pending.insert(lost.back().group.value);
  }
  return lost;
}

void LeaseTable::Commit(LearnerStep step) {
  const uint64_t begin = step.value * stride();
  for (uint64_t i = 0; i < stride(); ++i) {
    const auto found = book_.groups.find(begin + i);
    const bool refill = i >= options_.groups_per_step;
    OXBOW_CHECK(found == book_.groups.end() ? refill : found->second.accepted)
        << "a committed step has all its groups: " << step << " group " << begin + i;
  }
  if (begin < stride()) return;
  book_.groups.erase(book_.groups.begin(), book_.groups.lower_bound(begin - stride()));
}

const LeaseGrant* LeaseTable::Find(LeaseId lease) const {
  const auto live = book_.live.find(lease.value);
  return live == book_.live.end() ? nullptr : &live->second.grant;
}

uint64_t LeaseTable::RunningOf(const std::string& worker) const {
  const auto found = book_.holders.find(worker);
  return found == book_.holders.end() ? 0 : found->second;
}

uint64_t LeaseTable::failures(GroupId group) const {
  const auto found = book_.groups.find(group.value);
  return found == book_.groups.end() ? 0 : found->second.failures;
}

}  // namespace oxbow::learner
