// SPDX-License-Identifier: Apache-2.0
#include "core/rl/batch_adaptation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/golden/golden.h"

namespace oxbow::rl {
namespace {

using ::oxbow::testing::Golden;
using ::oxbow::testing::kGoldenTolerance;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kGroupSize = 8;

AdaptedBatch Adapt(const std::vector<double>& fresh, const std::vector<double>& again,
                   const std::vector<RecentGroup>& recent, size_t groups = 8, uint64_t step = 10,
                   uint64_t seed = 1) {
  return AdaptBatch({}, kGroupSize, groups, fresh, again, recent, seed, step);
}

TEST(BatchAdaptationTest, GoldenThresholdsInBothReadings) {
  for (const auto& r : Golden()["bapo"]) {
    const ThresholdRange range{.low = r["lo"], .high = r["hi"]};
    const double mean = r["mean_reward"];
    EXPECT_NEAR(ThresholdOf(ThresholdRule::kLiteral, range, 0.3, mean, 5), r["literal"],
                kGoldenTolerance);
    EXPECT_NEAR(ThresholdOf(ThresholdRule::kEasyToHard, range, 0.3, mean, 5), r["easy_to_hard"],
                kGoldenTolerance);
    EXPECT_EQ(ThresholdOf(ThresholdRule::kEasyToHard, range, 0.3, mean, 4), 0.3) << "too few";
    EXPECT_EQ(ThresholdOf(ThresholdRule::kFixed, range, 0.3, mean, 50), 0.3);
  }
}

TEST(BatchAdaptationTest, FreshGroupsAreKeptIfSomeAreRightAndSomeWrong) {
  const AdaptedBatch batch = Adapt({0, 1. / 8, 0.5, 7. / 8, 1, 0.99, 0.1}, {}, {});
  EXPECT_THAT(batch.fresh, ElementsAre(1, 2, 3));
}

TEST(BatchAdaptationTest, PromptsSampledAgainMustBeBetterThanBadAndNotSolved) {
  EXPECT_THAT(Adapt({}, {0, 0.125, 0.25, 0.875, 1}, {}).again, ElementsAre(2, 3));
  EXPECT_TRUE(IsBad({}, 0.125));
  EXPECT_FALSE(IsBad({}, 0.25));
}

TEST(BatchAdaptationTest, WhatNoThresholdAllowsIsNotKept) {
  EXPECT_FALSE(MayBeReused({}, 0.25));
  EXPECT_TRUE(MayBeReused({}, 0.75));
  EXPECT_TRUE(MayBeReused({.rule = ThresholdRule::kLiteral}, 0.125));
  EXPECT_FALSE(MayBeReused({.recent_steps = 0}, 0.5));
}

TEST(BatchAdaptationTest, BadPromptsAreSampledAgainEveryFewSteps) {
  BatchAdaptation rules{.again_every = 5};
  for (const auto& [step, due] :
       std::map<uint64_t, bool>{{0, false}, {1, false}, {5, true}, {9, false}, {10, true}}) {
    EXPECT_EQ(SamplesAgain(rules, step), due) << step;
  }
  rules.again_every = 0;
  EXPECT_FALSE(SamplesAgain(rules, 5));
}

std::vector<RecentGroup> Recent(size_t count) {
  std::vector<RecentGroup> recent;
  for (size_t i = 0; i < count; ++i) recent.push_back({.id = i, .step = 9, .mean = 0.5});
  return recent;
}

TEST(BatchAdaptationTest, ReusedGroupsFillWhatIsLeftOfTheBatch) {
  EXPECT_THAT(Adapt({0.5, 0.5, 0}, {0.5}, Recent(20)).reused, SizeIs(5));
  EXPECT_THAT(Adapt({0.5, 0.5, 0}, {0.5}, Recent(2)).reused, SizeIs(2));
  EXPECT_THAT(Adapt({0.5, 0.5}, {0.5}, Recent(20), /*groups=*/3).reused, IsEmpty());
  EXPECT_THAT(Adapt({0.5, 0.5}, {0.5}, Recent(20), /*groups=*/2).reused, IsEmpty()) << "over-full";
}

TEST(BatchAdaptationTest, OnlyRecentGroupsOfMiddlingDifficultyAreReused) {
  const std::vector<RecentGroup> recent = {{1, 9, 0.374}, {2, 9, 0.375}, {3, 9, 0.75}, {4, 9, 0.76},
                                           {5, 7, 0.5},   {6, 6, 0.5},   {7, 10, 0.5}};
  std::vector<size_t> reused = Adapt({}, {}, recent).reused;
  std::sort(reused.begin(), reused.end());
  EXPECT_THAT(reused, ElementsAre(1, 2, 4)) << "steps 7 to 9 may be reused in step 10";
}

TEST(BatchAdaptationTest, ReuseIsUniformAndAFunctionOfSeedAndStep) {
  std::map<size_t, int> drawn;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const auto batch = Adapt({}, {}, Recent(8), /*groups=*/2, /*step=*/10, seed);
    EXPECT_EQ(batch.reused, Adapt({}, {}, Recent(8), 2, 10, seed).reused);
    ASSERT_THAT(batch.reused, SizeIs(2));
    EXPECT_NE(batch.reused[0], batch.reused[1]);
    for (const size_t place : batch.reused) ++drawn[place];
  }
  // 1000 draws of each are expected, with a standard deviation of 27.
  for (const auto& [place, count] : drawn) EXPECT_NEAR(count, 1000, 110) << place;
  EXPECT_THAT(drawn, SizeIs(8));
}

TEST(BatchAdaptationTest, ThresholdsFollowTheFreshGroups) {
  const std::vector<double> hard(6, 0.1), easy(6, 0.9);
  BatchAdaptation rules{.rule = ThresholdRule::kEasyToHard};
  const auto reuse_min = [&](const std::vector<double>& fresh) {
    return AdaptBatch(rules, kGroupSize, 8, fresh, {}, {}, 1, 10).reuse_min;
  };
  EXPECT_EQ(reuse_min(hard), 0.375);
  EXPECT_EQ(reuse_min(easy), 0.125);
  rules.rule = ThresholdRule::kLiteral;
  EXPECT_LT(reuse_min(hard), reuse_min(easy));
  EXPECT_EQ(reuse_min({0.9, 0.9}), 0.375) << "two groups say too little";
}

}  // namespace
}  // namespace oxbow::rl
