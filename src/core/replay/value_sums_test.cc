// SPDX-License-Identifier: Apache-2.0
#include "core/replay/value_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/philox.h"

namespace oxbow::replay {
namespace {

struct Plain {
  double value = 0;
  LearnerStep birth;
};

// The walk that the sums spare.
void Compare(const std::vector<Plain>& entries, const ValueSums& sums, const Decay& decay,
             LearnerStep now) {
  double reward = 0;
  double priority = 0;
  double age = 0;
  uint64_t age_max = 0;
  bool all_born = true;
  for (const Plain& entry : entries) {
    const uint64_t years = AgeAt(now, entry.birth);
    reward += entry.value;
    priority += PriorityAt(decay, entry.value, years);
    age += static_cast<double>(years);
    age_max = std::max(age_max, years);
    all_born &= entry.birth <= now;
  }
  const double count = entries.empty() ? 1 : static_cast<double>(entries.size());
  ASSERT_EQ(sums.size(), entries.size());
  ASSERT_NEAR(sums.RewardMean(), reward / count, 1e-9);
  ASSERT_NEAR(sums.PriorityMean(now), priority / count, 1e-9 * (1 + std::abs(priority / count)));
  ASSERT_NEAR(sums.AgeMean(now), age / count, 1e-9);
  ASSERT_EQ(sums.AgeMax(now), age_max);
  ASSERT_EQ(sums.AllBorn(now), all_born);
}

TEST(ValueSumsTest, SumsAreThoseOfAWalkOverAllEntriesAfterAnyChanges) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomStream random({.seed = seed});
    Decay decay{.form = seed % 2 == 0 ? DecayForm::kMultiplicative : DecayForm::kSubtractive,
                .rate = seed % 2 == 0 ? .9 : .1,
                .floor = seed % 4 == 0 ? .25 : -.5};
    ValueSums sums(decay);
    std::vector<Plain> entries;
    LearnerStep now(0);
    for (int change = 0; change < 400; ++change) {
      const uint64_t kind = random.NextBelow(10);
      if (kind < 6 || entries.empty()) {
        const uint64_t back = random.NextBelow(6);
        const uint64_t birth = now.value + random.NextBelow(3);
        entries.push_back({.value = random.NextBelow(5) == 0 ? decay.floor : random.NextNormal(),
                           .birth = LearnerStep(birth > back ? birth - back : 0)});
        sums.Add(entries.back().value, entries.back().birth);
      } else if (kind < 9) {
        const auto at = entries.begin() + static_cast<ptrdiff_t>(random.NextBelow(entries.size()));
        sums.Remove(at->value, at->birth);
        entries.erase(at);
      } else {
        now = LearnerStep(now.value + 1);
      }
      ASSERT_NO_FATAL_FAILURE(Compare(entries, sums, decay, now)) << "change " << change;
    }
  }
}

}  // namespace
}  // namespace oxbow::replay
