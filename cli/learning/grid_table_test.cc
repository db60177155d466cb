// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/grid_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Runs of seeds 0 to 7 that end at `reward`, the later seeds a little higher.
RecipeCurves Point(const std::string& grid, const std::string& point, double reward) {
  RecipeCurves recipe{.name = grid + "-rate-" + point, .grid = grid, .point = point};
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const double end = reward + 0.01 * seed;
    recipe.curves.push_back(io::CurveOf({{{"step", 5}, {"eval/reward_mean", end}}}));
    recipe.seeds.push_back(seed);
  }
  return recipe;
}

Comparison TwoGrids() {
  return {.name = "x",
          .baseline = "plain-rate-2e-4",
          .recipes = {Point("plain", "1e-4", .1), Point("plain", "2e-4", .2),
                      Point("replay", "1e-4", .15), Point("replay", "2e-4", .65)}};
}

TEST(GridTableTest, ARecipeIsJudgedOnItsWholeRow) {
  const std::string text = GridTables(TwoGrids());
  EXPECT_THAT(text, HasSubstr("| held-out reward at the end | 1e-4 | 2e-4 | mean of the row |"));
  EXPECT_THAT(text, HasSubstr("| plain | 0.135 +- 0.009 | 0.235 +- 0.009 | 0.185 +- 0.009 | | |"));
  EXPECT_THAT(text, HasSubstr("| replay | 0.185 +- 0.009 | 0.685 +- 0.009 | 0.435 +- 0.009 | "
                              "+0.250 (8 seeds) | 0.00781 |"));
}

TEST(GridTableTest, ASeedThatIsNotFinishedAtOnePointIsInNoMeanOfTheRow) {
  Comparison comparison = TwoGrids();
  comparison.recipes[3].curves.pop_back();
  comparison.recipes[3].seeds.pop_back();
  EXPECT_THAT(GridTables(comparison), HasSubstr("+0.250 (7 seeds) | 0.0156 |"));
}

TEST(GridTableTest, GridsOfOtherPointsAreOtherTablesAndRecipesWithoutOneNone) {
  Comparison comparison = TwoGrids();
  comparison.recipes.push_back(Point("single", "9", .5));
  EXPECT_THAT(GridTables(comparison), HasSubstr("| held-out reward at the end | 9 |"));
  for (RecipeCurves& recipe : comparison.recipes) recipe.grid.clear();
  EXPECT_EQ(GridTables(comparison), "");
}

}  // namespace
}  // namespace oxbow::cli
