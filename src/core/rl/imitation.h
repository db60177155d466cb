// SPDX-License-Identifier: Apache-2.0
// Stored successes that train beside the fresh groups of a step: self-imitation that displaces
// nothing (docs/methods/reuse.md). Float64. Pure.
//
// A success of reward R of a prompt that succeeds at rate p counts
//
//   A = clip((R - p) / sqrt(p (1 - p) + e), 0, c)      e = .01
//
// what it would count in a large group of its prompt, never below 0: that a stored image is worse
// than what the policy makes by now is no reason to push it away. All A of a step are scaled by
//
//   min(1, w n / K)      n fresh samples whose group has a signal, K added ones, w the limit
//
// so that imitation never outweighs what the policy itself found out in the step: as the whole
// signal it collapses.
#pragma once

#include <cstddef>

namespace oxbow::rl {

inline constexpr double kAddedAdvantageMax = 3;  // c
inline constexpr double kAddedWeightMax = 1;     // w

// Requires `limit` >= 0. `rate` is cut to [0, 1].
double ImitationAdvantage(double reward, double rate, double limit);

// Requires `weight_max` >= 0. 0 where nothing was added or no fresh group has a signal.
double ImitationScale(double weight_max, size_t fresh_with_signal, size_t added);

}  // namespace oxbow::rl
