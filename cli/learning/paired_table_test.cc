// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/paired_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Reward .2 until a step, `after` from it on, of every fifth of 100 steps; 8 images a step. With
// `hard` the prompts of value "3" get there 20 steps later.
io::LearningCurve Jump(double step, double after = 0.9, bool hard = false) {
  std::vector<std::map<std::string, double>> lines;
  for (int i = 0; i <= 100; ++i) {
    std::map<std::string, double> line = {{"step", i}, {"train/samples", 8}};
    if (i % 5 == 0) {
      line["eval/reward_mean"] = i < step ? 0.2 : after;
      if (hard) line["eval/by_0_mean"] = 0.8;
      if (hard) line["eval/by_3_mean"] = i < step + 20 ? 0 : after;
    }
    lines.push_back(line);
  }
  return io::CurveOf(lines);
}

Comparison Paired() {
  Comparison comparison{
      .name = "x", .baseline = "slow", .level = 0, .recipes = {}, .levels = {0.5}};
  RecipeCurves slow{.name = "slow", .note = "", .curves = {}, .seeds = {}};
  RecipeCurves fast{.name = "fast", .note = "", .curves = {}, .seeds = {}};
  for (uint32_t seed = 0; seed < 8; ++seed) {
    slow.curves.push_back(Jump(20 + 5 * seed));
    slow.seeds.push_back(seed);
    // In another order, and one seed that the baseline does not have.
    fast.curves.push_back(Jump(10 + 5 * (8 - seed)));
    fast.seeds.push_back(8 - seed);
  }
  comparison.recipes = {slow, fast};
  return comparison;
}

// The level is reached with the second of three evaluations behind the jump, five steps after it.
TEST(PairedTableTest, RunsArePairedBySeedAndComparedAtTheSameLevel) {
  const std::string text = PairedTables(Paired());
  // Seeds 1 to 7: 10 steps sooner than 30 to 60, mean 45.
  EXPECT_THAT(text, HasSubstr("| fast | 7/7 | 35.0 | 0.78 ("));
  EXPECT_THAT(text, HasSubstr(") | 0.0156 |")) << "2 / 2^7";
  EXPECT_THAT(text, HasSubstr("| slow | 8/8 | 42.5 | 1 | |"));
  EXPECT_THAT(text, HasSubstr("held-out reward 0.5, fixed beforehand"));
  EXPECT_THAT(text, HasSubstr("| - | - |")) << "NFE3 was not logged";
}

TEST(PairedTableTest, ARunThatNeverGetsThereIsABound) {
  Comparison comparison = Paired();
  comparison.recipes[1].curves[3] = Jump(20, 0.4);
  EXPECT_THAT(PairedTables(comparison), HasSubstr("| fast | 6/7 | >= "));
  EXPECT_THAT(PairedTables(comparison), HasSubstr("| >= 0."));
  comparison.recipes[0].curves[1] = Jump(20, 0.4);
  EXPECT_THAT(PairedTables(comparison), HasSubstr("| ~ "));
  comparison.levels.clear();
  EXPECT_EQ(PairedTables(comparison), "");
}

TEST(PairedTableTest, AnEstimatedLevelWidensTheInterval) {
  RecipeCurves baseline{.name = "b", .note = "", .curves = {}, .seeds = {}};
  RecipeCurves recipe{.name = "r", .note = "", .curves = {}, .seeds = {}};
  for (int i = 0; i < 8; ++i) {
    baseline.curves.push_back(Jump(50, i % 2 == 0 ? 0.4 : 0.8));
    // At .4 after 20 steps, at .8 after 60.
    io::LearningCurve curve = Jump(60, 0.8);
    for (io::CurvePoint& point : curve.points) {
      if (point.step >= 20 && point.step < 60) point.reward = 0.6;
    }
    recipe.curves.push_back(curve);
  }
  const auto fixed = CostRatio(recipe, baseline, 0.6, &io::CurvePoint::step, true);
  const auto estimated = CostRatio(recipe, baseline, 0, &io::CurvePoint::step, true);
  ASSERT_TRUE(fixed.has_value() && estimated.has_value());
  EXPECT_NEAR(fixed->low, fixed->high, 1e-12) << "all runs are alike";
  EXPECT_GT(estimated->high, estimated->low + 0.2) << "but where the level lies is not known";
}

TEST(PairedTableTest, DifficultiesHaveTheirEndsAndTheHardestItsSteps) {
  Comparison comparison{
      .name = "x", .baseline = "slow", .level = 0, .recipes = {}, .levels = {0.5}};
  comparison.recipes = {{"slow", "", {Jump(40, 0.9, true), Jump(50, 0.9, true)}, {}},
                        {"fast", "", {Jump(20, 0.9, true), Jump(30, 0.9, true)}, {}},
                        {"none", "", {}, {}}};
  const std::string text = DifficultyTable(comparison);
  EXPECT_THAT(text, HasSubstr("| recipe | 0 | 3 |"));
  EXPECT_THAT(text, HasSubstr("| fast | 0.800 +- 0.000 | 0.900 +- 0.000 |"));
  EXPECT_THAT(text, HasSubstr("began lowest (3)"));
  EXPECT_THAT(text, HasSubstr("| fast | 2/2 | 50.0 |"));
  EXPECT_THAT(text, Not(HasSubstr("none")));
  EXPECT_EQ(DifficultyTable(Paired()), "") << "nothing was measured by value";
}

}  // namespace
}  // namespace oxbow::cli
