// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/equal_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;

// Reward .2 until a step, .9 from it on; the rarer layout has `share` of the pictures all the time.
io::LearningCurve Jump(double step, double share) {
  std::vector<std::map<std::string, double>> lines;
  for (int i = 0; i <= 100; i += 5) {
    lines.push_back(
        {{"step", i}, {"eval/reward_mean", i < step ? 0.2 : 0.9}, {"eval/minority_share", share}});
  }
  return io::CurveOf(lines);
}

// Every sixteenth of the pictures costs 5 steps. `more`: what the recipe costs beside that.
RecipeCurves WithShares(const std::string& name, const std::vector<int>& sixteenths, double more) {
  RecipeCurves recipe{.name = name, .note = "", .curves = {}};
  for (const int n : sixteenths) recipe.curves.push_back(Jump(35 + 5 * n + more, n / 16.0));
  return recipe;
}

Comparison Of(RecipeCurves recipe) {
  return {.name = "x",
          .baseline = "keeps",
          .level = 0,
          .recipes = {WithShares("keeps", {6, 4, 7, 5, 4, 6}, 0), std::move(recipe)},
          .levels = {0.5}};
}

TEST(EqualLayoutsTest, WhatALostLayoutSavesIsNoSpeed) {
  const std::string text = EqualLayoutTables(Of(WithShares("collapses", {1, 0, 0, 2, 3, 1}, 0)));
  EXPECT_THAT(text, HasSubstr("| keeps | 0.333 | 1 |"));
  EXPECT_THAT(text, HasSubstr("| collapses | 0.073 | 1.00 (1.00 to 1.00) |"));
}

TEST(EqualLayoutsTest, WhatSharesDoNotExplainIsLeft) {
  // The level is reached five steps after the jump: 66.7 of the baseline in the mean.
  const std::string text = EqualLayoutTables(Of(WithShares("faster", {1, 0, 0, 2, 3, 1}, -15)));
  EXPECT_THAT(text, HasSubstr("| faster | 0.073 | 0.78 (0.76 to 0.79) |"));
}

TEST(EqualLayoutsTest, OneLayoutHasNoTable) {
  Comparison comparison = Of(WithShares("other", {0, 0, 0, 0, 0, 0}, -10));
  comparison.recipes[0] = WithShares("keeps", {0, 0, 0, 0, 0, 0}, 0);
  EXPECT_EQ(EqualLayoutTables(comparison), "");
  Comparison none = Of(WithShares("other", {1}, 0));
  none.levels.clear();
  EXPECT_EQ(EqualLayoutTables(none), "");
}

}  // namespace
}  // namespace oxbow::cli
