// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/conditioning_holders.h"

#include <algorithm>

namespace oxbow::learner {

void ConditioningHolders::Given(const std::string& sha256, const std::string& worker) {
  const auto [found, is_new] = held_.try_emplace(sha256);
  Held& held = found->second;
  if (is_new) {
    held.turn = turns_.insert(turns_.end(), &found->first);
  } else {
    turns_.splice(turns_.end(), turns_, held.turn);
  }
  std::erase(held.workers, worker);
  held.workers.insert(held.workers.begin(), worker);
  held.workers.resize(std::min(held.workers.size(), options_.workers_max));
  if (held_.size() <= options_.conditionings_max) return;
  const auto oldest = held_.find(*turns_.front());
  turns_.pop_front();
  held_.erase(oldest);
}

std::vector<std::string> ConditioningHolders::Of(const std::string& sha256) const {
  const auto found = held_.find(sha256);
  return found == held_.end() ? std::vector<std::string>() : found->second.workers;
}

}  // namespace oxbow::learner
