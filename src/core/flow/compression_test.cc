// SPDX-License-Identifier: Apache-2.0
// How many steps compression leaves, and on which levels.
#include "core/flow/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/flow/schedule.h"
#include "core/flow/window.h"
#include "tests/golden/golden.h"

namespace oxbow::flow {
namespace {

TEST(CompressionTest, AShareOfOneLeavesTheGridAsItIs) {
  for (int steps = 0; steps < 30; ++steps) EXPECT_EQ(CompressedSteps(1, steps), steps);
  const std::vector<double> grid = SigmaGrid(ScheduleKind::kDiffusersDefault, 10, 3);
  const std::vector<double> rest(grid.begin() + 5, grid.end());
  EXPECT_EQ(CompressedLevels({}, grid, 4), rest);
}

// Promise: Compressed steps change no trained transition.
TEST(CompressionTest, GoldenLevels) {
  for (const auto& r : oxbow::testing::CompressionGolden()["compression"]) {
    const std::vector<double> wanted = r["sigmas"];
    const int first = r["last"].get<int>() + 1;
    const std::vector<double> grid = SigmaGrid(ScheduleKind::kDance, r["steps"], r["shift"]);
    const std::vector<double> levels =
        CompressedLevels({.share = r["share"], .shift = r["shift"]}, grid, first);
    ASSERT_EQ(static_cast<size_t>(first) + 1 + levels.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const size_t free = static_cast<size_t>(first) + 1;
      EXPECT_NEAR(i < free ? grid[i] : levels[i - free], wanted[i],
                  oxbow::testing::kGoldenTolerance);
    }
  }
}

// Whatever is left, a path has a step to the picture, and no more steps than it had.
TEST(CompressionTest, TheStepsLeftAreBetweenOneAndAll) {
  for (const double share : {1e-6, .1, .2, .4, .5, .75, .99}) {
    int before = 0;
    for (int steps = 0; steps < 60; ++steps) {
      const int left = CompressedSteps(share, steps);
      EXPECT_LE(left, steps);
      EXPECT_GE(left, std::min(steps, 1));
      EXPECT_GE(left, before);
      before = left;
    }
  }
}

TEST(CompressionTest, LevelsFallFromTheWindowToThePicture) {
  for (const ScheduleKind kind :
       {ScheduleKind::kDiffusersDefault, ScheduleKind::kLinspace, ScheduleKind::kDance,
        ScheduleKind::kUnipcFlow, ScheduleKind::kUnipcFlowWhole}) {
    for (const double shift : {.5, 1., 3., 12.}) {
      const std::vector<double> grid = SigmaGrid(kind, 25, shift);
      for (int first = 0; first < 25; ++first) {
        const Compression compression{.share = .4, .shift = shift};
        const std::vector<double> levels = CompressedLevels(compression, grid, first);
        EXPECT_EQ(static_cast<int>(levels.size()), CompressedSteps(.4, 25 - first));
        double before = grid[static_cast<size_t>(first)];
        for (const double level : levels) {
          EXPECT_LT(level, before);
          before = level;
        }
        EXPECT_EQ(levels.back(), 0);
      }
    }
  }
}

// Half the steps of a grid that is a shifted line visit every second level.
TEST(CompressionTest, HalfTheStepsOfAShiftedLineVisitEverySecondLevel) {
  const std::vector<double> grid = SigmaGrid(ScheduleKind::kDance, 24, 3);
  const Compression compression{.share = 11. / 21, .shift = 3};
  const std::vector<double> levels = CompressedLevels(compression, grid, 4);
  ASSERT_EQ(levels.size(), 10u);
  for (size_t j = 0; j < levels.size(); ++j) EXPECT_NEAR(levels[j], grid[6 + 2 * j], 1e-14);
}

TEST(CompressionTest, StepsAreTakenUpToTheLastStochasticOneAndThenCompressed) {
  const std::vector<bool> sde = StepFlags({3, 4}, 25);
  EXPECT_EQ(FirstFreeLatent(sde, 0), 5);
  EXPECT_EQ(FirstFreeLatent(sde, 4), 5);
  EXPECT_EQ(FirstFreeLatent(sde, 5), 5);
  EXPECT_EQ(FirstFreeLatent(sde, 9), 9) << "a tail that begins behind the window";
  EXPECT_EQ(FirstFreeLatent(StepFlags({}, 25), 0), 0);
  EXPECT_EQ(StepsTaken(1, sde, 0), 25);
  EXPECT_EQ(StepsTaken(1, sde, 7), 18);
  EXPECT_EQ(StepsTaken(.4, sde, 0), 5 + 7);  // 21 levels, 8 of them stay.
  EXPECT_EQ(StepsTaken(.4, sde, 5), 7);
  EXPECT_EQ(StepsTaken(.4, sde, 9), CompressedSteps(.4, 16));
  EXPECT_EQ(StepsTaken(.4, sde, 25), 0);
}

}  // namespace
}  // namespace oxbow::flow
