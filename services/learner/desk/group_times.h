// How long recent groups took, and from when on one of them is a straggler:
//
//   limit = factor * quantile of the last `window` times, once there are `samples_min` of them
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "base/statistics.h"

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
    return rule_.factor * Quantile(std::vector(times_.begin(), times_.end()), rule_.quantile);
  }

 private:
  StragglerRule rule_;
  std::deque<absl::Duration> times_;  // Oldest first.
};

}  // namespace oxbow::learner
