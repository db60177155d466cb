// SPDX-License-Identifier: Apache-2.0
// Groups that may be produced with given weights: staleness is bounded before the work, not after.
//
// Group g belongs to learner step g / U. With weights of learner step L_V one more group may be
// started only while
//
//   accepted + running < (S + L_V + 1) U        accepted: over the whole run
//
// Groups are started lowest first, so the next one's index is at most accepted + running, its
// staleness g / U - L_V at most S, and nothing is produced that would be thrown away.
#pragma once

#include <cstdint>

namespace oxbow::replay {

struct AdmissionRule {
  uint64_t staleness_max = 0;    // S, learner steps.
  uint64_t groups_per_step = 1;  // U
};

// Whether a group may be started beside `held` groups that are accepted or under way, with the
// weights after `weights_step` (L_V) committed steps.
constexpr bool Admits(const AdmissionRule& rule, uint64_t weights_step, uint64_t held) {
  return held < (rule.staleness_max + weights_step + 1) * rule.groups_per_step;
}

// Whether group `group` may be produced with those weights without exceeding the budget: what a
// second lease of a group under way needs, for which `held` says nothing.
constexpr bool Serves(const AdmissionRule& rule, uint64_t weights_step, uint64_t group) {
  return group / rule.groups_per_step <= weights_step + rule.staleness_max;
}

}  // namespace oxbow::replay
