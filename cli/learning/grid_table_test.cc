// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/grid_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Runs of seeds 0 to 7 that end at `reward`, the later seeds a little higher, and have reached .3
// at step `at`; 0: never.
RecipeCurves Point(const std::string& grid, const std::string& point, double reward,
                   double at = 0) {
  RecipeCurves recipe{.name = grid + "-rate-" + point, .grid = grid, .point = point};
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const double end = reward + 0.01 * seed;
    std::vector<std::map<std::string, double>> rows = {{{"step", 50}, {"eval/reward_mean", end}}};
    if (at > 0) {  // A level is reached by the mean of three evaluations.
      rows.insert(rows.begin(), {{{"step", 1}, {"eval/reward_mean", .2}},
                                 {{"step", 2}, {"eval/reward_mean", .2}},
                                 {{"step", at + seed % 2}, {"eval/reward_mean", .9}}});
    }
    recipe.curves.push_back(io::CurveOf(rows));
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
  EXPECT_THAT(
      text,
      HasSubstr("| plain | 0.135 +- 0.009 | 0.235 +- 0.009 | 0.185 +- 0.009 | | | 2e-4 | | |"));
  EXPECT_THAT(text, HasSubstr("| replay | 0.185 +- 0.009 | 0.685 +- 0.009 | 0.435 +- 0.009 | "
                              "+0.250 (8 seeds) | 0.00781 | 2e-4 | +0.450 (8 seeds) | 0.00781 |"));
  EXPECT_THAT(text, HasSubstr("| difference, p | +0.050, 0.0078 | +0.450, 0.0078 | | | | | | |"));
}

TEST(GridTableTest, StepsToALevelAreComparedOverTheRowAndAtTheBestOfEach) {
  Comparison comparison = TwoGrids();
  comparison.levels = {.3};
  comparison.recipes = {Point("plain", "1e-4", .1), Point("plain", "2e-4", .2, 30),
                        Point("replay", "1e-4", .1, 20), Point("replay", "2e-4", .2, 40)};
  const std::string text = GridTables(comparison);
  EXPECT_THAT(text,
              HasSubstr("| plain | 50.0 +- 0.0 | 30.5 +- 0.2 | 40.2 +- 0.1 | | | 2e-4 | | |"));
  EXPECT_THAT(text,
              HasSubstr("| replay | 20.5 +- 0.2 | 40.5 +- 0.2 | 30.5 +- 0.2 | -9.8 (8 seeds) | "
                        "0.00781 | 1e-4 | -10.0 (8 seeds) | 0.00781 |"));
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
