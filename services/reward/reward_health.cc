// SPDX-License-Identifier: Apache-2.0
#include "services/reward/reward_health.h"

namespace oxbow::reward {
namespace {

constexpr std::string_view kPrefix = "oxbow.v1.Reward/";

}  // namespace

RewardHealth::RewardHealth(const std::vector<std::string>& rewards) {
  absl::MutexLock lock(&mutex_);
  for (const std::string& reward : rewards) failures_[reward] = 0;
}

void RewardHealth::Ready() {
  absl::MutexLock lock(&mutex_);
  ready_ = true;
}

bool RewardHealth::BatchScored(const std::string& reward, size_t scored, size_t failed) {
  absl::MutexLock lock(&mutex_);
  int& failures = failures_[reward];
  if (scored > 0) {
    failures = 0;
  } else if (failed > 0 && failures < kFailuresMax) {
    ++failures;
  }
  return failures < kFailuresMax;
}

std::optional<bool> RewardHealth::Serves(std::string_view service) const {
  absl::MutexLock lock(&mutex_);
  if (service.empty() || service == kPrefix.substr(0, kPrefix.size() - 1)) return ready_;
  if (!service.starts_with(kPrefix)) return std::nullopt;
  const auto reward = failures_.find(service.substr(kPrefix.size()));
  if (reward == failures_.end()) return std::nullopt;
  return ready_ && reward->second < kFailuresMax;
}

}  // namespace oxbow::reward
