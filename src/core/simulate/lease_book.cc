#include "core/simulate/lease_book.h"

#include <algorithm>

#include "base/check.h"

namespace oxbow::simulate {
namespace {

constexpr size_t kDurationsKept = 512;
constexpr uint64_t kDurationsNeeded = 16;  // Before anything counts as late.
constexpr uint64_t kDurationsBetween = 32;

}  // namespace

LeaseBook::LeaseBook(replay::AdmissionRule rule, double speculation_quantile)
    : rule_(rule), quantile_(speculation_quantile) {}

void LeaseBook::PlanStep() {
  planned_ += rule_.groups_per_step;
  groups_.resize(planned_ - first_);
  accepted_by_step_.resize(planned_steps());
}

bool LeaseBook::CanGrant(uint64_t weights_step) const {
  if (next_ == planned_ && again_.empty()) return false;
  return replay::Admits(rule_, weights_step, accepted_ + running_ + cooling_);
}

uint32_t LeaseBook::NewLease(uint64_t group, uint32_t worker, double now) {
  uint32_t place = 0;
  if (free_places_.empty()) {
    place = static_cast<uint32_t>(places_.size());
    places_.emplace_back();
  } else {
    place = free_places_.back();
    free_places_.pop_back();
  }
  Lease& lease = places_[place];
  lease = Lease{.group = group,
                .granted_at = now,
                .worker = worker,
                .generation = lease.generation + 1,
                .held = true};
  Group& record = GroupAt(group);
  ++record.attempts;
  record.leases[record.leases[0] == kNoLease ? 0 : 1] = place;
  ++counts_.granted;
  return place;
}

uint32_t LeaseBook::Grant(uint32_t worker, uint64_t weights_step, double now) {
  OXBOW_CHECK(CanGrant(weights_step)) << "nothing to grant";
  uint64_t group = next_;
  if (again_.empty()) {
    ++next_;
  } else {
    group = *again_.begin();
    again_.erase(again_.begin());
  }
  const uint32_t lease = NewLease(group, worker, now);
  ++running_;
  if (quantile_ > 0) started_.push_back({lease, places_[lease].generation});
  return lease;
}

std::optional<LeaseBook::Started> LeaseBook::Oldest() {
  while (!started_.empty()) {
    const Started front = started_.front();
    const Lease& lease = places_[front.lease];
    const bool alone = lease.generation == front.generation && lease.live() &&
                       GroupAt(lease.group).leases[1] == kNoLease;
    if (alone) return front;
    started_.pop_front();
  }
  return std::nullopt;
}

std::optional<double> LeaseBook::LateAt() {
  if (quantile_ <= 0 || durations_seen_ < kDurationsNeeded) return std::nullopt;
  if (late_known_at_ == 0 || durations_seen_ >= late_known_at_ + kDurationsBetween) {
    std::vector<double> sorted = durations_;
    const size_t rank = static_cast<size_t>(quantile_ * static_cast<double>(sorted.size()));
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(rank), sorted.end());
    late_after_s_ = sorted[rank];
    late_known_at_ = durations_seen_;
  }
  const std::optional<Started> oldest = Oldest();
  if (!oldest.has_value()) return std::nullopt;
  return places_[oldest->lease].granted_at + late_after_s_;
}

std::optional<uint32_t> LeaseBook::GrantSecond(uint32_t worker, uint64_t weights_step, double now) {
  const std::optional<double> late_at = LateAt();
  if (!late_at.has_value() || *late_at > now) return std::nullopt;
  const Lease& late = places_[started_.front().lease];
  if (late.worker == worker || !replay::Serves(rule_, weights_step, late.group)) {
    return std::nullopt;
  }
  started_.pop_front();
  ++counts_.second;
  return NewLease(late.group, worker, now);
}

// The lease ends; the group's other live lease, if any, moves to the front.
void LeaseBook::End(uint32_t lease, LeaseEnd end) {
  Lease& ended = places_[lease];
  OXBOW_CHECK(ended.live()) << "a lease ends once";
  ended.end = end;
  Group& group = GroupAt(ended.group);
  if (group.leases[0] == lease) group.leases[0] = group.leases[1];
  group.leases[1] = kNoLease;
  switch (end) {
    case LeaseEnd::kAccepted:
      ++counts_.accepted;
      break;
    case LeaseEnd::kFailed:
      ++counts_.failed;
      break;
    case LeaseEnd::kExpired:
      ++counts_.expired;
      break;
    case LeaseEnd::kSuperseded:
      ++counts_.superseded;
      break;
    default:
      ++counts_.dropped;
  }
  if (!ended.held) Reuse(lease);
}

bool LeaseBook::Accept(uint32_t lease, double now, uint32_t& other) {
  other = kNoLease;
  Lease& done = places_[lease];
  if (!done.live()) return false;
  Group& group = GroupAt(done.group);
  group.accepted = true;
  group.work_s = done.work_s;
  const uint64_t step = done.group / rule_.groups_per_step;
  group.staleness = step > done.sampled_step ? step - done.sampled_step : 0;
  ++accepted_;
  --running_;
  ++accepted_by_step_[step];
  if (quantile_ > 0) {
    const double took = now - done.granted_at;
    if (durations_.size() < kDurationsKept) {
      durations_.push_back(took);
    } else {
      durations_[durations_seen_ % kDurationsKept] = took;
    }
    ++durations_seen_;
  }
  End(lease, LeaseEnd::kAccepted);
  other = group.leases[0];
  if (other != kNoLease) End(other, LeaseEnd::kSuperseded);
  return true;
}

bool LeaseBook::IsOut(const Group& group) const { return group.leases[0] != kNoLease; }

void LeaseBook::Expire(uint32_t lease) {
  const uint64_t group = places_[lease].group;
  End(lease, LeaseEnd::kExpired);
  if (IsOut(GroupAt(group))) return;
  --running_;
  again_.insert(group);
}

bool LeaseBook::Fail(uint32_t lease) {
  const uint64_t id = places_[lease].group;
  End(lease, LeaseEnd::kFailed);
  Group& group = GroupAt(id);
  ++group.failures;
  if (IsOut(group)) return false;
  --running_;
  ++cooling_;
  group.cooling = true;
  return true;
}

void LeaseBook::Warm(uint64_t id) {
  Group& group = GroupAt(id);
  OXBOW_CHECK(group.cooling) << "group " << id << " is not cooling down";
  group.cooling = false;
  --cooling_;
  again_.insert(id);
}

bool LeaseBook::IsComplete(uint64_t step) const {
  return step < accepted_by_step_.size() && accepted_by_step_[step] == rule_.groups_per_step;
}

void LeaseBook::ForgetBefore(uint64_t step) {
  const uint64_t first = step * rule_.groups_per_step;
  while (first_ < first) {
    groups_.pop_front();
    ++first_;
  }
}

void LeaseBook::Restart(uint64_t step) {
  for (uint32_t place = 0; place < places_.size(); ++place) {
    if (places_[place].generation > 0 && places_[place].live()) End(place, LeaseEnd::kDropped);
  }
  const uint64_t first = step * rule_.groups_per_step;
  OXBOW_CHECK(first_ <= first) << "the groups of a checkpoint's successors are remembered";
  groups_.resize(first - first_);
  planned_ = next_ = accepted_ = first;
  running_ = cooling_ = 0;
  again_.clear();
  started_.clear();
  accepted_by_step_.resize(step);
}

void LeaseBook::Drop(uint32_t lease) {
  places_[lease].held = false;
  Reuse(lease);
}

void LeaseBook::Reuse(uint32_t lease) {
  if (places_[lease].held || places_[lease].live()) return;
  free_places_.push_back(lease);
}

LeaseCounts LeaseBook::counts() const {
  LeaseCounts counts = counts_;
  for (const Lease& lease : places_) {
    if (lease.generation > 0 && lease.live()) ++counts.in_flight;
  }
  return counts;
}

}  // namespace oxbow::simulate
