// SPDX-License-Identifier: Apache-2.0
// How long recent groups took, and how long a group may take before it is a straggler:
//
//   limit = factor * quantile of the last `window` times, once there are `samples_min` of them
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace oxbow::lease {

struct StragglerRule {
  double quantile = 0;  // 0: no group is ever a straggler.
  double factor = 1.5;
  size_t samples_min = 8;
  size_t window = 64;
};

inline constexpr double kStragglerQuantile = 0.95;

// The rule of a run: `factor` times kStragglerQuantile; 0: no group is ever a straggler.
StragglerRule StragglersAbove(double factor);

class GroupTimes {
 public:
  explicit GroupTimes(StragglerRule rule);

  void Add(absl::Duration took);

  // Nothing while too few groups are known or the rule is off.
  std::optional<absl::Duration> limit() const { return limit_; }

 private:
  void SetLimit();

  StragglerRule rule_;
  std::deque<absl::Duration> times_;    // The last `window` of them, oldest first.
  std::vector<absl::Duration> sorted_;  // The same, shortest first.
  std::optional<absl::Duration> limit_;
};

}  // namespace oxbow::lease
