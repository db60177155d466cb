// SPDX-License-Identifier: Apache-2.0
#include "core/lease/lease_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/philox.h"

namespace oxbow::lease {
namespace {

TEST(GroupTimesTest, NothingIsAStragglerWhileTheRuleIsOffOrTooFewTimesAreKnown) {
  GroupTimes off(StragglerRule{});
  GroupTimes times({.quantile = 0.5, .factor = 2, .samples_min = 3});
  for (int i = 0; i < 2; ++i) {
    off.Add(absl::Seconds(1));
    times.Add(absl::Seconds(1));
    EXPECT_FALSE(off.limit().has_value());
    EXPECT_FALSE(times.limit().has_value());
  }
  times.Add(absl::Seconds(5));
  EXPECT_EQ(times.limit(), absl::Seconds(2));
}

// The definition, sorted again each time.
TEST(GroupTimesTest, LimitIsTheFactorTimesTheQuantileOfTheWindow) {
  constexpr size_t kWindow = 16;
  RandomStream random({.seed = 3});
  GroupTimes times({.quantile = 0.9, .factor = 1.5, .samples_min = 1, .window = kWindow});
  std::vector<absl::Duration> all;
  for (int i = 0; i < 500; ++i) {
    all.push_back(absl::Milliseconds(random.NextBelow(40)));  // Equal times happen.
    times.Add(all.back());
    std::vector<absl::Duration> last(all.end() - std::min<std::ptrdiff_t>(kWindow, i + 1),
                                     all.end());
    std::sort(last.begin(), last.end());
    const double rank = 0.9 * static_cast<double>(last.size() - 1);
    ASSERT_EQ(times.limit(), 1.5 * last[static_cast<size_t>(rank + 0.5)]) << i << ", seed 3";
  }
}

}  // namespace
}  // namespace oxbow::lease
