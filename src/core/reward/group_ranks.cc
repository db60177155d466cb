// SPDX-License-Identifier: Apache-2.0
#include "core/reward/group_ranks.h"

#include <algorithm>

namespace oxbow::reward {

std::vector<double> RankShares(const std::vector<double>& values) {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  std::vector<double> shares;
  shares.reserve(values.size());
  for (const double value : values) {
    const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), value);
    // The mean of the ranks first .. last - 1.
    const double rank =
        static_cast<double>((first - sorted.begin()) + (last - sorted.begin()) - 1) / 2;
    shares.push_back(rank / static_cast<double>(values.size()));
  }
  return shares;
}

}  // namespace oxbow::reward
