// SPDX-License-Identifier: Apache-2.0
// Ranks in place of values: how a member compares with its group, whatever the scale.
#pragma once

#include <vector>

namespace oxbow::reward {

// rank / n of each value: 0 for the smallest of n, (n - 1) / n for the largest. Equal values share
// the mean of their ranks, so that order does not matter. Requires finite values.
std::vector<double> RankShares(const std::vector<double>& values);

}  // namespace oxbow::reward
