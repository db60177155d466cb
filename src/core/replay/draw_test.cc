// SPDX-License-Identifier: Apache-2.0
// Draws are fair, repeatable and blind to storage order.
#include "core/replay/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "tests/golden/golden.h"

namespace oxbow::replay {
namespace {

std::vector<EntryId> Ids(uint64_t count) {
  std::vector<EntryId> ids;
  for (uint64_t i = 0; i < count; ++i) ids.push_back(EntryId(100 + 7 * i));
  return ids;
}

TEST(DrawTest, ExcludesTheSameStepTheWornAndTheOld) {
  const auto eligible = [](uint64_t step, const DrawLimits& limits) {
    return Eligible(/*birth=*/LearnerStep(10), /*uses=*/2, LearnerStep(step), limits);
  };
  EXPECT_FALSE(eligible(9, {}));
  EXPECT_FALSE(eligible(10, {}));
  EXPECT_TRUE(eligible(11, {}));
  EXPECT_TRUE(eligible(11, {.uses_max = 3}));
  EXPECT_FALSE(eligible(11, {.uses_max = 2}));
  EXPECT_TRUE(eligible(15, {.age_max = 5}));
  EXPECT_FALSE(eligible(16, {.age_max = 5}));
}

TEST(DrawTest, DependsOnSeedAndStepNotOnOrder) {
  std::vector<EntryId> reversed = Ids(50);
  std::reverse(reversed.begin(), reversed.end());
  const auto drawn = DrawUniform(Ids(50), 10, 3, LearnerStep(5));
  EXPECT_EQ(drawn, DrawUniform(reversed, 10, 3, LearnerStep(5)));
  EXPECT_NE(drawn, DrawUniform(Ids(50), 10, 4, LearnerStep(5)));
  EXPECT_NE(drawn, DrawUniform(Ids(50), 10, 3, LearnerStep(6)));
}

TEST(DrawTest, NeverRepeatsAndGivesAllWhenAskedForMore) {
  const auto drawn = DrawUniform(Ids(20), 100, 3, LearnerStep(5));
  EXPECT_EQ(std::set<EntryId>(drawn.begin(), drawn.end()).size(), 20u);
  EXPECT_TRUE(DrawUniform({}, 5, 3, LearnerStep(5)).empty());
  EXPECT_TRUE(DrawUniform(Ids(5), 0, 3, LearnerStep(5)).empty());
}

TEST(DrawTest, EveryPairIsEquallyLikely) {
  std::map<std::set<EntryId>, int> counts;
  const int draws = 15'000;
  for (int step = 0; step < draws; ++step) {
    const auto drawn = DrawUniform(Ids(6), 2, 11, LearnerStep(step));
    ++counts[{drawn.begin(), drawn.end()}];
  }
  ASSERT_EQ(counts.size(), 15u);
  double chi_squared = 0;
  for (const auto& [pair, count] : counts)
    chi_squared += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(chi_squared, 36.1);  // 99.9 % quantile at 14 degrees of freedom.
}

// The closed form against the integral of p (1 - p) over the density p^s (1 - p)^f.
TEST(LearnabilityTest, IsTheMeanOfPTimesOneMinusPOverThePosterior) {
  constexpr int kCells = 20'000;
  for (const uint64_t successes : {0, 1, 3, 8, 40}) {
    for (const uint64_t failures : {0, 1, 2, 16}) {
      double mass = 0, sum = 0;
      for (int i = 0; i < kCells; ++i) {
        const double p = (i + 0.5) / kCells;
        const double density = std::pow(p, static_cast<double>(successes)) *
                               std::pow(1 - p, static_cast<double>(failures));
        mass += density;
        sum += density * p * (1 - p);
      }
      EXPECT_NEAR(Learnability(successes, failures), sum / mass, 1e-7)
          << successes << ", " << failures;
    }
  }
}

TEST(LearnabilityTest, AnUntriedHeadComesBeforeOneThatAlwaysOrNeverSucceeds) {
  EXPECT_GT(Learnability(0, 0), Learnability(4, 0));
  EXPECT_GT(Learnability(0, 0), Learnability(0, 4));
  EXPECT_GT(Learnability(2, 2), Learnability(0, 0));
}

TEST(DrawWeightedTest, FirstDrawsFollowTheWeights) {
  const std::vector<WeightedEntry> entries = {
      {EntryId(5), 1}, {EntryId(9), 2}, {EntryId(2), 0}, {EntryId(7), 5}, {EntryId(4), -1}};
  std::map<EntryId, int> counts;
  const int draws = 8000;
  for (int step = 0; step < draws; ++step) {
    const auto drawn = DrawWeighted(entries, 1, 17, LearnerStep(step));
    ASSERT_EQ(drawn.size(), 1u);
    ++counts[drawn[0]];
  }
  EXPECT_EQ(counts.count(EntryId(2)) + counts.count(EntryId(4)), 0u);
  double chi_squared = 0;
  for (const WeightedEntry& entry : entries) {
    if (entry.weight <= 0) continue;
    const double expected = draws * entry.weight / 8;
    chi_squared += std::pow(counts[entry.id] - expected, 2) / expected;
  }
  EXPECT_LT(chi_squared, 13.8);  // 99.9 % quantile at 2 degrees of freedom.
}

// Without replacement: given that 7 (weight 5) came first, 9 follows with 2/3.
TEST(DrawWeightedTest, SecondDrawsFollowTheWeightsThatAreLeft) {
  const std::vector<WeightedEntry> entries = {{EntryId(5), 1}, {EntryId(9), 2}, {EntryId(7), 5}};
  int first = 0, second = 0;
  for (int step = 0; step < 8000; ++step) {
    const auto drawn = DrawWeighted(entries, 2, 17, LearnerStep(step));
    if (drawn[0] != EntryId(7)) continue;
    ++first;
    second += drawn[1] == EntryId(9);
  }
  EXPECT_NEAR(static_cast<double>(second) / first, 2.0 / 3, 0.022);  // Over 3 standard errors.
}

TEST(DrawWeightedTest, WithoutWeightsItTakesAnyAndAllWhenAskedForMore) {
  const std::vector<WeightedEntry> entries = {{EntryId(1), 0}, {EntryId(2), 3}, {EntryId(3), 0}};
  const auto drawn = DrawWeighted(entries, 9, 1, LearnerStep(4));
  ASSERT_EQ(drawn.size(), 3u);
  EXPECT_EQ(drawn[0], EntryId(2));
  EXPECT_EQ(drawn, DrawWeighted({entries[2], entries[1], entries[0]}, 9, 1, LearnerStep(4)));
  EXPECT_TRUE(DrawWeighted({}, 3, 1, LearnerStep(4)).empty());
}

std::vector<ValuedEntry> RandomEntries(std::mt19937& random, int count, int kinds) {
  std::vector<ValuedEntry> entries;
  for (int i = 0; i < count; ++i) {
    entries.push_back({EntryId(random()), LearnerStep(random() % 4),
                       static_cast<double>(random() % static_cast<unsigned>(kinds)) / 4});
  }
  return entries;
}

std::vector<double> ValuesOf(const std::vector<ValuedEntry>& entries,
                             const std::vector<EntryId>& drawn) {
  std::vector<double> values;
  for (const EntryId id : drawn) {
    for (const ValuedEntry& entry : entries) {
      if (entry.id == id) values.push_back(entry.value);
    }
  }
  return values;
}

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.);
}

double Variance(const std::vector<double>& values) {
  const double mean = Sum(values) / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return squares / static_cast<double>(values.size());
}

TEST(DrawTest, TheBestComeFirstAndOfEqualOnesTheNewest) {
  const std::vector<ValuedEntry> entries = {{EntryId(1), LearnerStep(9), .5},
                                            {EntryId(2), LearnerStep(3), .75},
                                            {EntryId(3), LearnerStep(5), .75},
                                            {EntryId(4), LearnerStep(5), .75},
                                            {EntryId(5), LearnerStep(1), -1}};
  EXPECT_EQ(DrawBest(entries, 4),
            (std::vector<EntryId>{EntryId(3), EntryId(4), EntryId(2), EntryId(1)}));
  EXPECT_EQ(DrawBest(entries, 99).size(), 5u);
  EXPECT_TRUE(DrawBest({}, 3).empty());
  EXPECT_TRUE(DrawVaried({}, 3).empty());
  EXPECT_TRUE(DrawVaried(entries, 0).empty());
}

TEST(DrawTest, GoldenDraws) {
  for (const auto& r : testing::ReuseGolden()["draws"]) {
    std::vector<ValuedEntry> entries;
    for (const auto& e : r["entries"]) {
      entries.push_back({EntryId(e["id"]), LearnerStep(e["birth"]), e["value"]});
    }
    std::vector<EntryId> best;
    for (const uint64_t id : r["best"]) best.push_back(EntryId(id));
    EXPECT_EQ(DrawBest(entries, r["count"]), best) << r;
    EXPECT_EQ(ValuesOf(entries, DrawVaried(entries, r["count"])),
              r["varied_values"].get<std::vector<double>>())
        << r;
  }
  for (const auto& r : testing::ReuseGolden()["learnability"]) {
    EXPECT_NEAR(Learnability(r["successes"], r["failures"]), r["mean"], testing::kGoldenTolerance);
  }
}

// Against all subsets, as RePO's code tries them.
TEST(DrawTest, NoSubsetVariesMoreAndOfEqualOnesNoneIsBetter) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int trial = 0; trial < 300; ++trial) {
    const int count = 1 + static_cast<int>(random() % 9);
    const std::vector<ValuedEntry> entries = RandomEntries(random, count, trial % 2 ? 2 : 50);
    const auto wanted = 1 + random() % static_cast<unsigned>(count);
    const std::vector<double> drawn = ValuesOf(entries, DrawVaried(entries, wanted));
    ASSERT_EQ(drawn.size(), wanted);
    for (unsigned subset = 0; subset < 1u << count; ++subset) {
      std::vector<double> values;
      for (int i = 0; i < count; ++i) {
        if (subset >> i & 1u) values.push_back(entries[static_cast<size_t>(i)].value);
      }
      if (values.size() != wanted) continue;
      EXPECT_LE(Variance(values), Variance(drawn) + 1e-12);
      if (Variance(values) > Variance(drawn) - 1e-12) {
        EXPECT_LE(Sum(values), Sum(drawn) + 1e-9);
      }
    }
  }
}

TEST(DrawTest, WhatIsBestOrMostVariedDoesNotDependOnOrder) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<ValuedEntry> entries = RandomEntries(random, 12, 5);
    const std::vector<EntryId> best = DrawBest(entries, 5), varied = DrawVaried(entries, 5);
    EXPECT_EQ(std::set<EntryId>(varied.begin(), varied.end()).size(), 5u);
    std::shuffle(entries.begin(), entries.end(), random);
    EXPECT_EQ(DrawBest(entries, 5), best);
    EXPECT_EQ(DrawVaried(entries, 5), varied);
  }
}

}  // namespace
}  // namespace oxbow::replay
