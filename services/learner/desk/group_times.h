// How long recent groups took, and from when on one of them is a straggler:
//
//   limit = factor * quantile of the last `window` times, once there are `samples_min` of them
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace oxbow::learner {

struct StragglerRule {
  double quantile = 0;  // 0: nothing is ever a straggler.
  double factor = 1.5;
  size_t samples_min = 8;
  size_t window = 64;
};

class GroupTimes {
 public:
  explicit GroupTimes(StragglerRule rule) : rule_(rule) {}

  void Add(absl::Duration took) {
    times_.push_back(took);
    while (times_.size() > rule_.window) times_.pop_front();
  }

  // Nothing while too few groups are known or the rule is off.
  std::optional<absl::Duration> limit() const {
    if (rule_.quantile <= 0 || times_.size() < rule_.samples_min) return std::nullopt;
    if (times_.empty()) return absl::ZeroDuration();
    std::vector<absl::Duration> sorted(times_.begin(), times_.end());
    const std::ptrdiff_t rank =
        std::lround(std::min(rule_.quantile, 1.0) * static_cast<double>(sorted.size() - 1));
    std::nth_element(sorted.begin(), sorted.begin() + rank, sorted.end());
    return rule_.factor * sorted[static_cast<size_t>(rank)];
  }

 private:
  StragglerRule rule_;
  std::deque<absl::Duration> times_;  // Oldest first.
};

}  // namespace oxbow::learner
