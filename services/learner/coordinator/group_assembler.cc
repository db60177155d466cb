// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/group_assembler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::learner {

void GroupAssembler::Add(LearnerStep step, ReceivedGroup group) {
  absl::MutexLock lock(&mutex_);
  const uint64_t id = group.group.group_id();
  const bool fresh = steps_[step].emplace(id, std::move(group)).second;
  OXBOW_CHECK(fresh) << "a group was accepted twice: " << id;
}

absl::StatusOr<std::vector<ReceivedGroup>> GroupAssembler::Take(LearnerStep step, size_t count,
                                                                absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = steps_.find(step);
    return !stopped_.ok() || (found != steps_.end() && found->second.size() >= count);
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), timeout)) {
    return absl::DeadlineExceededError(
        absl::StrCat("groups of step ", step.value, " are still missing"));
  }
  if (!stopped_.ok()) return stopped_;
  std::vector<ReceivedGroup> groups;
  for (auto& [id, group] : steps_[step]) groups.push_back(std::move(group));
  OXBOW_CHECK(groups.size() == count) << "groups of step " << step;
  steps_.erase(step);
  return groups;
}

void GroupAssembler::Stop(absl::Status reason) {
  absl::MutexLock lock(&mutex_);
  if (stopped_.ok()) stopped_ = std::move(reason);
}

absl::Status GroupAssembler::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

size_t GroupAssembler::ready() const {
  absl::MutexLock lock(&mutex_);
  size_t count = 0;
  for (const auto& [step, groups] : steps_) count += groups.size();
  return count;
}

}  // namespace oxbow::learner
