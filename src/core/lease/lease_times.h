// SPDX-License-Identifier: Apache-2.0
// Times that follow from the length of a lease, for the table, workers and the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace oxbow::lease {

// The maximum age of a lease: `factor` times the median time of recent groups, at least `floor`
// lease times, twice as much for each earlier attempt at its group. No limit before `samples_min`
// groups are known.
struct AgeRule {
  double factor = 8;  // 0: off.
  double floor = 4;
  uint32_t doublings_max = 10;
  size_t samples_min = 8;
  size_t window = 64;
};

// How often a worker renews, and says that it is there: two messages may get lost.
inline absl::Duration RenewalInterval(absl::Duration lease_time) { return lease_time / 3; }

// How long the leases of a worker live on after its stream broke: it may come back on another one.
inline absl::Duration DepartureGrace(absl::Duration lease_time) { return lease_time / 10; }

// A worker whose sampler has not advanced for this long renews what it samples no more.
inline absl::Duration StandstillMax(absl::Duration lease_time) { return 4 * lease_time; }

// How long recent groups took, and how long a group may take before it is a straggler:
//
//   limit = factor * quantile of the last `window` times, once there are `samples_min` of them

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
