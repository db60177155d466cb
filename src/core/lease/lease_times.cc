// SPDX-License-Identifier: Apache-2.0
#include "core/lease/lease_times.h"

#include <algorithm>
#include <cmath>

namespace oxbow::lease {

StragglerRule StragglersAbove(double factor) {
  if (factor <= 0) return {};
  return {.quantile = kStragglerQuantile, .factor = factor};
}

GroupTimes::GroupTimes(StragglerRule rule) : rule_(rule) { SetLimit(); }

void GroupTimes::Add(absl::Duration took) {
  if (rule_.quantile <= 0) return;
  times_.push_back(took);
  sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), took), took);
  while (times_.size() > rule_.window) {
    sorted_.erase(std::lower_bound(sorted_.begin(), sorted_.end(), times_.front()));
    times_.pop_front();
  }
  SetLimit();
}

void GroupTimes::SetLimit() {
  if (rule_.quantile <= 0 || times_.size() < rule_.samples_min) return;
  limit_ = absl::ZeroDuration();
  if (sorted_.empty()) return;
  const double last = static_cast<double>(sorted_.size() - 1);
  const long rank = std::lround(std::min(rule_.quantile, 1.0) * last);
  limit_ = rule_.factor * sorted_[static_cast<size_t>(rank)];
}

}  // namespace oxbow::lease
