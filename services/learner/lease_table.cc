#include "services/learner/lease_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "core/replay/admission.h"

namespace oxbow::learner {

LeaseTable::LeaseTable(Options options, const Clock& clock)
    : options_(options),
      clock_(clock),
      planned_(options_.first_step.value * options_.groups_per_step),
      accepted_(planned_) {
  OXBOW_CHECK(options_.groups_per_step > 0) << "groups per step";
  OXBOW_CHECK(options_.lease_time > absl::ZeroDuration()) << "lease time";
}

void LeaseTable::Plan(LearnerStep step) {
  OXBOW_CHECK(step.value * options_.groups_per_step == planned_)
      << "steps are planned in order: " << step << " after " << planned_ << " groups";
  for (uint64_t i = 0; i < options_.groups_per_step; ++i) {
    records_[planned_];
    pending_.insert(planned_++);
  }
}

bool LeaseTable::Admits(LearnerStep weights_step) const {
  // Groups that cool down hold their place: they are below what would be granted instead of them.
  const uint64_t held = accepted_ + live_.size() + cooling_.size();
  const replay::AdmissionRule rule{.staleness_max = options_.staleness_max,
                                   .groups_per_step = options_.groups_per_step};
  return replay::Admits(rule, weights_step.value, held);
}

void LeaseTable::WarmUp() {
  const absl::Duration now = clock_.Now();
  for (auto it = cooling_.begin(); it != cooling_.end();) {
    if (it->second > now) {
      ++it;
      continue;
    }
    pending_.insert(it->first);
    it = cooling_.erase(it);
  }
}

std::optional<LeaseGrant> LeaseTable::Acquire(const std::string& worker, LearnerStep weights_step) {
  WarmUp();
  if (pending_.empty() || !Admits(weights_step)) return std::nullopt;
  const uint64_t group = *pending_.begin();
  pending_.erase(pending_.begin());
  Record& record = records_.at(group);
  // The epoch in the upper half keeps ids of an earlier start of the learner from meaning anything.
  record.lease = LeaseId((options_.epoch.value << 32) | ++lease_count_);
  const LeaseGrant grant{.id = record.lease,
                         .group = GroupId(group),
                         .step = StepOf(GroupId(group)),
                         .attempt = ++record.attempt,
                         .worker = worker};
  live_.emplace(grant.id.value, Live{grant, clock_.Now() + options_.lease_time});
  return grant;
}

bool LeaseTable::Renew(const std::string& worker, LeaseId lease) {
  const auto live = live_.find(lease.value);
  if (live == live_.end() || live->second.grant.worker != worker) return false;
  if (live->second.deadline <= clock_.Now()) return false;
  live->second.deadline = clock_.Now() + options_.lease_time;
  return true;
}

AcceptOutcome LeaseTable::Accept(GroupId group, LeaseId lease) {
  const auto found = records_.find(group.value);
  if (found == records_.end() || lease.value == 0 || found->second.lease != lease) {
    return AcceptOutcome::kFenced;
  }
  Record& record = found->second;
  if (record.accepted) return AcceptOutcome::kDuplicate;
  const auto live = live_.find(lease.value);
  OXBOW_CHECK(live != live_.end()) << "a group's lease is live until it is accepted: " << group;
  if (live->second.deadline <= clock_.Now()) return AcceptOutcome::kFenced;
  live_.erase(live);
  record.accepted = true;
  ++accepted_;
  return AcceptOutcome::kAccepted;
}

// The group of a live lease is free again; the lease id never comes back.
void LeaseTable::Release(std::map<uint64_t, Live>::iterator live) {
  records_.at(live->second.grant.group.value).lease = LeaseId(0);
  live_.erase(live);
}

absl::Status LeaseTable::Fail(LeaseId lease, const std::string& reason) {
  const auto live = live_.find(lease.value);
  if (live == live_.end()) return absl::OkStatus();
  const uint64_t group = live->second.grant.group.value;
  const std::string worker = live->second.grant.worker;
  Release(live);
  Record& record = records_.at(group);
  const uint32_t doublings = std::min(record.failures, 30u);
  const absl::Duration wait =
      std::min(options_.backoff_first * (int64_t{1} << doublings), options_.backoff_max);
  cooling_[group] = clock_.Now() + wait;
  if (++record.failures < options_.failures_max) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("group ", group, " failed ", record.failures,
                                             " times, last on worker ", worker, ": ", reason));
}

void LeaseTable::Depart(const std::string& worker, absl::Duration grace) {
  const absl::Duration end = clock_.Now() + grace;
  for (auto& [id, live] : live_) {
    if (live.grant.worker == worker) live.deadline = std::min(live.deadline, end);
  }
}

std::vector<LeaseGrant> LeaseTable::Expire() {
  const absl::Duration now = clock_.Now();
  std::vector<LeaseGrant> lost;
  for (auto it = live_.begin(); it != live_.end();) {
    const auto live = it++;
    if (live->second.deadline > now) continue;
    lost.push_back(live->second.grant);
    pending_.insert(live->second.grant.group.value);
    Release(live);
  }
  return lost;
}

void LeaseTable::Commit(LearnerStep step) {
  const uint64_t begin = step.value * options_.groups_per_step;
  for (uint64_t group = begin; group < begin + options_.groups_per_step; ++group) {
    const auto found = records_.find(group);
    OXBOW_CHECK(found != records_.end() && found->second.accepted)
        << "a committed step has all its groups: " << step << " group " << group;
  }
  if (begin < options_.groups_per_step) return;
  records_.erase(records_.begin(), records_.lower_bound(begin - options_.groups_per_step));
}

uint64_t LeaseTable::RunningOf(const std::string& worker) const {
  return static_cast<uint64_t>(std::count_if(live_.begin(), live_.end(), [&](const auto& item) {
    return item.second.grant.worker == worker;
  }));
}

uint64_t LeaseTable::failures(GroupId group) const {
  const auto found = records_.find(group.value);
  return found == records_.end() ? 0 : found->second.failures;
}

}  // namespace oxbow::learner
