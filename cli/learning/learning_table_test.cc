// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/learning_table.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace oxbow::cli {
namespace {

// Reward `before` until a step, `after` from it on; evaluated every 10 of 100 steps.
io::LearningCurve Jump(double step, double before, double after) {
  std::vector<std::map<std::string, double>> lines;
  for (int i = 0; i <= 100; ++i) {
    std::map<std::string, double> line = {{"step", i}, {"time/step_s", 0.5}, {"train/samples", 8}};
    if (i % 10 == 0) line["eval/reward_mean"] = i < step ? before : after;
    lines.push_back(line);
  }
  return io::CurveOf(lines);
}

Comparison Small() {
  Comparison comparison{.name = "small", .baseline = "slow", .level = 0, .recipes = {}};
  comparison.recipes.push_back({"slow", "", {Jump(70, 0.4, 0.8), Jump(70, 0.4, 0.8)}});
  comparison.recipes.push_back({"fast", "a note", {Jump(10, 0.5, 0.9), Jump(10, 0.5, 0.9)}});
  comparison.recipes.push_back({"never", "", {Jump(100, 0.5, 0.6)}});
  comparison.recipes.push_back({"unfinished", "", {}});
  return comparison;
}

std::string RowOf(const std::string& table, const std::string& name) {
  const size_t begin = table.find("| " + name + " |");
  EXPECT_NE(begin, std::string::npos) << table;
  return begin == std::string::npos ? "" : table.substr(begin, table.find('\n', begin) - begin);
}

TEST(LearningTableTest, RatiosAreToWholeRunsOfTheBaseline) {
  const Comparison comparison = Small();
  EXPECT_NEAR(LevelOf(comparison).value(), 0.8, 1e-12);
  const std::string table = LearningTable(comparison);
  // Steps 10, 20 and 30 are the first three evaluations at .9; the mean of 0.5, .9, .9 is less.
  const std::string fast = RowOf(table, "fast");
  EXPECT_TRUE(absl::StartsWith(fast, "| fast | 2/2 | 30.0 | 0.300 (0.300 to 0.300) |")) << fast;
  EXPECT_TRUE(absl::StrContains(fast, "a note")) << fast;
  EXPECT_TRUE(absl::StrContains(fast, "| - |")) << "NFE3 was not logged: " << fast;
  const std::string never = RowOf(table, "never");
  EXPECT_TRUE(absl::StartsWith(never, "| never | 0/1 | >= 100.0 | >= 1.000")) << never;
  EXPECT_FALSE(absl::StrContains(table, "unfinished"));
}

TEST(LearningTableTest, ThePageHasTheTableAndABandAroundEachMean) {
  const Comparison comparison = Small();
  const std::string page = LearningPage(comparison, LearningTable(comparison));
  EXPECT_TRUE(absl::StrContains(page, "<th>recipe</th>"));
  EXPECT_TRUE(absl::StrContains(page, "<td>slow</td>"));
  EXPECT_FALSE(absl::StrContains(page, "|"));
  EXPECT_TRUE(absl::StrContains(page, "<polygon class=\"band\""));
}

TEST(LearningTableTest, ALevelMayBeGiven) {
  Comparison comparison = Small();
  comparison.level = 0.85;
  EXPECT_TRUE(absl::StrContains(RowOf(LearningTable(comparison), "slow"), "0/2"));
  comparison.recipes[0].curves.clear();
  comparison.level = 0;
  EXPECT_FALSE(LevelOf(comparison).has_value());
  EXPECT_EQ(LearningTable(comparison), "No run of the baseline is finished.\n");
}

TEST(LearningTableTest, APageBeforeTheFirstRunHasNoPlot) {
  Comparison comparison = Small();
  for (RecipeCurves& recipe : comparison.recipes) recipe.curves.clear();
  const std::string page = LearningPage(comparison, LearningTable(comparison));
  EXPECT_TRUE(absl::StrContains(page, "No run of the baseline is finished."));
  EXPECT_FALSE(absl::StrContains(page, "<figure"));
}

// How often `part` is in `text`.
int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// One seed of three has learned: the mean's two standard errors go below 0, the band does not.
TEST(LearningTableTest, ABandEndsWhereTheSeedsDo) {
  Comparison comparison = Small();
  io::LearningCurve flat = comparison.recipes[0].curves[0];
  for (io::CurvePoint& point : flat.points) point.reward = 0;
  io::LearningCurve risen = flat;
  for (io::CurvePoint& point : risen.points) point.reward = 0.6;
  comparison.recipes.resize(1);
  comparison.recipes[0].curves = {flat, flat, risen};
  EXPECT_EQ(Count(LearningPicture(comparison), ">-0."), 0) << "a tick below 0";
}

TEST(LearningTableTest, ThePictureHasALineOfEachRecipeAndNeedsNoPage) {
  const std::string picture = LearningPicture(Small());
  EXPECT_TRUE(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_EQ(Count(picture, "<svg"), 2) << "the file and one chart";
  EXPECT_EQ(Count(picture, "class=\"band\""), 3) << "of the recipes that have runs";
  EXPECT_EQ(Count(picture, "class=\"key\""), 3);
  EXPECT_TRUE(absl::StrContains(picture, ">slow</text>"));
  EXPECT_EQ(Count(picture, "class=\"title\""), 2) << "its title needs two lines over one chart";
  EXPECT_EQ(Count(picture, "<p"),
            Count(picture, "<polygon") + Count(picture, "<polyline") + Count(picture, "<path"));
}

TEST(LearningTableTest, ThePictureOfGridsHasAChartForEachPoint) {
  Comparison comparison = Small();
  for (RecipeCurves& recipe : comparison.recipes) recipe.grid = recipe.name;
  std::vector<RecipeCurves> points;
  for (const char* const point : {"1e-4", "2e-4", "4e-4"}) {
    for (RecipeCurves recipe : comparison.recipes) {
      recipe.point = point;
      points.push_back(recipe);
    }
  }
  comparison.recipes = points;
  const std::string picture = LearningPicture(comparison);
  EXPECT_EQ(Count(picture, "<svg"), 4);
  EXPECT_EQ(Count(picture, "class=\"title\""), 1) << "over two charts side by side";
  EXPECT_EQ(Count(picture, "class=\"key\""), 3) << "one legend";
  for (const char* const point : {"1e-4", "2e-4", "4e-4"}) {
    EXPECT_EQ(Count(picture, std::string(">") + point + "</text>"), 1) << point;
  }
  for (RecipeCurves& recipe : comparison.recipes) recipe.curves.clear();
  EXPECT_EQ(LearningPicture(comparison), "");
}

}  // namespace
}  // namespace oxbow::cli
