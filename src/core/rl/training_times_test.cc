// SPDX-License-Identifier: Apache-2.0
#include "core/rl/training_times.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/flow/schedule.h"
#include "core/rl/policy_copies.h"

namespace oxbow::rl {
namespace {

const std::vector<double>& Grid() {
  static const std::vector<double> grid =
      flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, 3);
  return grid;
}

std::vector<double> Draw(const TimeOptions& options, uint32_t trajectory, uint64_t group = 1,
                         uint64_t step = 5) {
  return DrawTimes(options, Grid(),
                   {.run_seed = 3, .step = step, .group = group, .trajectory = trajectory});
}

int LevelOf(double sigma) {
  const auto found = std::find(Grid().begin(), Grid().end(), sigma);
  return found == Grid().end() ? -1 : static_cast<int>(found - Grid().begin());
}

TEST(TrainingTimesTest, TheGridIsDrawnWithoutRepetitionAndEveryLevelAsOften) {
  std::vector<int> seen(10, 0);
  for (uint32_t trajectory = 0; trajectory < 2000; ++trajectory) {
    std::set<int> levels;
    for (const double t : Draw({}, trajectory)) levels.insert(LevelOf(t));
    ASSERT_EQ(levels.size(), 9u) << "int(.99 * 10), each once";
    for (const int level : levels) ++seen[static_cast<size_t>(level)];
  }
  for (const int count : seen) EXPECT_NEAR(count, 1800, 80);
}

TEST(TrainingTimesTest, BinsTakeOneLevelEach) {
  for (uint32_t trajectory = 0; trajectory < 200; ++trajectory) {
    const auto whole =
        Draw({.sampler = TimeSampler::kDiscrete, .count = 5, .fraction = 1}, trajectory);
    for (int k = 0; k < 5; ++k) EXPECT_EQ(LevelOf(whole[static_cast<size_t>(k)]) / 2, k);
    const auto without =
        Draw({.sampler = TimeSampler::kWithoutInit, .count = 4, .fraction = .9}, trajectory);
    for (const double t : without) EXPECT_TRUE(LevelOf(t) >= 1 && LevelOf(t) <= 8) << t;
    EXPECT_TRUE(std::is_sorted(without.rbegin(), without.rend()));
    const auto with =
        Draw({.sampler = TimeSampler::kWithInit, .count = 5, .fraction = .9}, trajectory);
    for (int k = 0; k < 5; ++k) {  // The pure noise, and two of the eight other levels to a bin.
      EXPECT_EQ((LevelOf(with[static_cast<size_t>(k)]) + 1) / 2, k);
    }
    EXPECT_EQ(Draw({.sampler = TimeSampler::kWithInit, .count = 1}, trajectory),
              std::vector<double>{1});
  }
}

TEST(TrainingTimesTest, ContinuousTimesAreStratifiedAndShifted) {
  for (uint32_t trajectory = 0; trajectory < 200; ++trajectory) {
    const auto uniform = Draw({.sampler = TimeSampler::kUniform, .count = 4}, trajectory);
    for (int k = 0; k < 4; ++k) {
      EXPECT_GE(uniform[static_cast<size_t>(k)], flow::Shift(3, .2 + .2 * k));
      EXPECT_LE(uniform[static_cast<size_t>(k)], flow::Shift(3, .4 + .2 * k));
    }
    auto normal = Draw({.sampler = TimeSampler::kLogitNormal, .count = 2}, trajectory);
    std::sort(normal.begin(), normal.end());
    EXPECT_LT(normal[0], flow::Shift(3, .5)) << "one on either side of the median";
    EXPECT_GT(normal[1], flow::Shift(3, .5));
    EXPECT_GE(normal[0], .01);
  }
}

TEST(TrainingTimesTest, WhoSharesDrawsTheSameAndNobodyElse) {
  const auto noise = [](Sharing sharing, uint64_t step, uint64_t group, uint32_t trajectory,
                        int pair) {
    return DrawPairNoise({.noise = sharing}, {3, step, group, trajectory}, pair, {1, 2, 2});
  };
  for (const auto& [sharing, of_group, of_step] :
       {std::tuple{Sharing::kSample, false, false}, std::tuple{Sharing::kGroup, true, false},
        std::tuple{Sharing::kStep, true, true}}) {
    TimeOptions options{.sampler = TimeSampler::kUniform, .count = 3, .times = sharing};
    EXPECT_EQ(Draw(options, 1) == Draw(options, 2), of_group);
    EXPECT_EQ(Draw(options, 1, 1) == Draw(options, 1, 2), of_step);
    EXPECT_EQ(at::equal(noise(sharing, 5, 1, 1, 0), noise(sharing, 5, 1, 2, 0)), of_group);
    EXPECT_EQ(at::equal(noise(sharing, 5, 1, 1, 0), noise(sharing, 5, 2, 1, 0)), of_step);
    EXPECT_FALSE(at::equal(noise(sharing, 5, 1, 1, 0), noise(sharing, 5, 1, 1, 1)));
  }
}

TEST(DecayScheduleTest, PublishedSchedules) {
  const DecayOptions none{.rate = 0}, single{.decay = .5, .rate = .001};
  const DecayOptions ocr{.decay = .999, .rate = .0075, .flat = 75};
  EXPECT_EQ(DecayAt(none, 50), 0);
  EXPECT_DOUBLE_EQ(DecayAt(single, 200), .2);
  EXPECT_DOUBLE_EQ(DecayAt(single, 700), .5);
  EXPECT_EQ(DecayAt(ocr, 74), 0);
  EXPECT_DOUBLE_EQ(DecayAt(ocr, 95), .15);
  EXPECT_DOUBLE_EQ(DecayAt(ocr, 300), .999);
}

TEST(DecayScheduleTest, OtherShapes) {
  EXPECT_EQ(DecayAt({.shape = DecayShape::kConstant, .decay = .9}, 1), .9);
  EXPECT_DOUBLE_EQ(DecayAt({.shape = DecayShape::kPower, .decay = .9, .warmup = 10}, 4), 5. / 14);
  const DecayOptions linear{.shape = DecayShape::kLinear, .decay = .9, .warmup = 10};
  EXPECT_DOUBLE_EQ(DecayAt(linear, 5), .45);
  EXPECT_DOUBLE_EQ(DecayAt(linear, 50), .9);
}

}  // namespace
}  // namespace oxbow::rl
