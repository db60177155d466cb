// SPDX-License-Identifier: Apache-2.0
#include "core/rl/prompt_progress.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/philox.h"

namespace oxbow::rl {
namespace {

size_t LevelOfEight(int right) {
  std::vector<double> rewards(8, 0);
  for (int i = 0; i < right; ++i) rewards[static_cast<size_t>(i)] = 1;
  return LevelOf(rewards, 1);
}

TEST(PromptProgressTest, ALevelIsAQuarterAndNoneAndAllAreApart) {
  std::vector<size_t> levels;
  for (int right = 0; right <= 8; ++right) levels.push_back(LevelOfEight(right));
  EXPECT_EQ(levels, (std::vector<size_t>{0, 1, 1, 2, 2, 3, 3, 4, 5}));
  const auto level = [](std::vector<double> rewards, double full) {
    return LevelOf(rewards, full);
  };
  EXPECT_EQ(level({1e-9, 0}, 1), 1u);
  EXPECT_EQ(level({1, 1 - 1e-9}, 1), 4u);
  EXPECT_EQ(level({-3, 0.5}, 2), 1u) << "shares are limited to 0 to 1";
  EXPECT_EQ(level({26, 30}, 26), 5u);
}

// Five prompts. 7 is solved, 8 half, 9 falls back, 10 stays unsolved, 11 is seen once.
TEST(PromptProgressTest, PromptsMoveFromTheirFirstLevelToTheirLatest) {
  PromptProgress progress;
  EXPECT_FALSE(progress.SolvedShare().has_value());
  for (const auto& [prompt, level] : std::vector<std::pair<uint64_t, size_t>>{
           {7, 0}, {8, 0}, {9, 4}, {10, 0}, {7, 3}, {8, 2}, {9, 1}, {7, 5}, {10, 0}, {11, 0}}) {
    progress.See(PromptId(prompt), level);
  }
  PromptProgress::Migration want{};
  want[0][5] = want[0][2] = want[4][1] = 1;
  want[0][0] = 2;
  EXPECT_EQ(progress.Counts(), want);
  EXPECT_DOUBLE_EQ(*progress.SolvedShare(), 2.0 / 3);
  EXPECT_EQ(PromptProgress(progress.prompts()), progress);
}

TEST(PromptProgressTest, TheCountsSumToThePromptsSeen) {
  RandomStream random({.seed = 4});
  PromptProgress progress;
  for (int i = 0; i < 2000; ++i) {
    const auto draw = [&](double of) { return static_cast<uint64_t>(random.NextUniform() * of); };
    progress.See(PromptId(draw(300)), draw(kPromptLevels));
    uint64_t sum = 0;
    for (const auto& row : progress.Counts()) {
      for (const uint64_t count : row) sum += count;
    }
    ASSERT_EQ(sum, progress.prompts().size());
  }
}

}  // namespace
}  // namespace oxbow::rl
