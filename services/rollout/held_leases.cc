// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/held_leases.h"

#include <algorithm>
#include <utility>

namespace oxbow::rollout {

HeldLeases::HeldLeases(uint32_t capacity) : capacity_(capacity) {}

bool HeldLeases::Arrived(const v1::Lease& lease) {
  absl::MutexLock lock(&mutex_);
  return held_.try_emplace(lease.lease_id(), Held{.seconds = lease.seconds()}).second;
}

void HeldLeases::Ready(ReadyLease lease) {
  absl::MutexLock lock(&mutex_);
  const auto held = held_.find(lease.lease.lease_id());
  if (held != held_.end()) held->second.ready = std::move(lease);
}

void HeldLeases::Sampled(uint64_t lease_id) {
  absl::MutexLock lock(&mutex_);
  const auto held = held_.find(lease_id);
  if (held != held_.end()) held->second.sampled = true;
}

void HeldLeases::Done(uint64_t lease_id) {
  absl::MutexLock lock(&mutex_);
  held_.erase(lease_id);
}

void HeldLeases::Cancel(uint64_t lease_id) {
  absl::MutexLock lock(&mutex_);
  const auto held = held_.find(lease_id);
  if (held == held_.end()) return;
  if (!held->second.taken) {
    held_.erase(held);
  } else {
    held->second.cancelled = true;
  }
}

bool HeldLeases::Wanted(uint64_t lease_id) const {
  absl::MutexLock lock(&mutex_);
  const auto held = held_.find(lease_id);
  return held != held_.end() && !held->second.cancelled;
}

size_t HeldLeases::Takeable(std::optional<PolicyVersion> version) const {
  if (!version.has_value()) return 0;
  return static_cast<size_t>(std::count_if(held_.begin(), held_.end(), [&](const auto& item) {
    return item.second.ready.has_value() &&
           item.second.ready->lease.policy_version_min() <= version->value;
  }));
}

size_t HeldLeases::Untaken() const {
  return static_cast<size_t>(std::count_if(held_.begin(), held_.end(),
                                           [](const auto& item) { return !item.second.taken; }));
}

std::vector<ReadyLease> HeldLeases::TakeBatch(std::optional<PolicyVersion> version,
                                              absl::Duration linger, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto something = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return woken_ || Takeable(version) > 0;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&something), timeout);
  woken_ = false;
  // One large batch costs far less than several small ones: wait while leases keep coming and while
  // heads are being read.
  while (Takeable(version) > 0 && Untaken() < capacity_) {
    const size_t before = Untaken();
    const auto more = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Untaken() > before; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&more), linger)) break;
  }
  const auto heads_read = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Takeable(version) == Untaken();
  };
  if (Takeable(version) > 0) mutex_.AwaitWithTimeout(absl::Condition(&heads_read), 10 * linger);
  std::vector<ReadyLease> batch;
  for (auto& [id, held] : held_) {
    if (!held.ready.has_value() || !version.has_value() ||
        held.ready->lease.policy_version_min() > version->value) {
      continue;
    }
    held.taken = true;
    batch.push_back(*std::exchange(held.ready, std::nullopt));
  }
  return batch;
}

void HeldLeases::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
}

uint32_t HeldLeases::free_places() const {
  absl::MutexLock lock(&mutex_);
  if (draining_ || held_.size() >= capacity_) return 0;
  return capacity_ - static_cast<uint32_t>(held_.size());
}

std::vector<uint64_t> HeldLeases::held() const {
  absl::MutexLock lock(&mutex_);
  std::vector<uint64_t> ids;
  for (const auto& [id, held] : held_) ids.push_back(id);
  return ids;
}

std::vector<uint64_t> HeldLeases::sampled() const {
  absl::MutexLock lock(&mutex_);
  std::vector<uint64_t> ids;
  for (const auto& [id, held] : held_) {
    if (held.sampled) ids.push_back(id);
  }
  return ids;
}

absl::Duration HeldLeases::lease_time_min() const {
  absl::MutexLock lock(&mutex_);
  double least = 0;
  for (const auto& [id, held] : held_) {
    if (least == 0 || held.seconds < least) least = held.seconds;
  }
  return absl::Seconds(least);
}

void HeldLeases::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  woken_ = true;
}

bool HeldLeases::AwaitEmpty(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto empty = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return held_.empty(); };
  return mutex_.AwaitWithTimeout(absl::Condition(&empty), timeout);
}

}  // namespace oxbow::rollout
