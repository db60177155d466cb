// SPDX-License-Identifier: Apache-2.0
// How far the mean score of a set of prompts can be trusted: the interval that it would fall into
// for other prompts of the same kind.
//
// Pictures of one prompt resemble each other, so it is prompts that are drawn again: each value
// here is the mean over the pictures of one prompt. With several groups every group is drawn from
// separately, and the result is the mean over the groups' means.
#pragma once

#include <cstdint>
#include <vector>

namespace oxbow::reward {

struct MeanInterval {
  double mean = 0;
  double low = 0;
  double high = 0;
};

inline constexpr int kBootstrapResamples = 2'000;

// 2.5 % and 97.5 % quantiles of means of samples drawn with replacement (percentile bootstrap).
// Repeatable: a function of its arguments. Requires a group, a value in each, and resamples.
MeanInterval BootstrapMean(const std::vector<std::vector<double>>& groups, uint64_t seed,
                           int resamples = kBootstrapResamples);

}  // namespace oxbow::reward
