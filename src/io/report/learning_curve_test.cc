// SPDX-License-Identifier: Apache-2.0
#include "io/report/learning_curve.h"

#include <gtest/gtest.h>

#include <cmath>

namespace oxbow::io {
namespace {

using Lines = std::vector<std::map<std::string, double>>;

// An evaluation every second step; a step takes 1 s, of which evaluations .25 s.
Lines RunWith(const std::vector<double>& rewards) {
  Lines lines = {{{"step", 0}, {"eval/reward_mean", rewards[0]}, {"time/step_s", 9}}};
  for (int step = 1; step <= 2 * (static_cast<int>(rewards.size()) - 1); ++step) {
    std::map<std::string, double> line = {{"step", step},
                                          {"train/samples", 64},
                                          {"time/step_s", 1},
                                          {"rollout/rows_forward", 100},
                                          {"train/rows_forward", 10},
                                          {"train/rows_backward", 20}};
    if (step % 2 == 0) {
      line["eval/reward_mean"] = rewards[step / 2];
      line["time/eval_s"] = 0.25;
      line["eval/speckle_mean"] = 0.01 * step;
    }
    lines.push_back(line);
  }
  return lines;
}

TEST(LearningCurveTest, ALevelIsReachedByThreeEvaluationsInARow) {
  const LearningCurve curve = CurveOf(RunWith({0.5, 0.9, 0.6, 0.9, 0.9, 0.95}));
  EXPECT_FALSE(Reached(curve, 0.95).has_value());
  // .9 is met by one evaluation at step 2, and by the mean of three at step 10.
  const auto reached = Reached(curve, 0.9);
  ASSERT_TRUE(reached.has_value());
  EXPECT_EQ(reached->step, 10);
  EXPECT_EQ(reached->images, 640);
  EXPECT_EQ(reached->nfe3, 10 * (100 + 10 + 3 * 20));
  EXPECT_DOUBLE_EQ(reached->seconds, 10 - 5 * 0.25) << "without evaluations, nor step 0";
  EXPECT_EQ(Reached(curve, 0.6)->step, 4) << "not before three evaluations";
  EXPECT_NEAR(curve.final_reward, (0.9 + 0.9 + 0.95) / 3, 1e-12);
  EXPECT_NEAR(curve.final_speckle, 0.08, 1e-12);
  EXPECT_TRUE(std::isnan(curve.final_minority));
}

TEST(LearningCurveTest, WhatWasNotLoggedIsUnknownNotFree) {
  Lines lines = RunWith({0.1, 0.2, 0.3, 0.4});
  lines[3].erase("train/rows_backward");
  const LearningCurve curve = CurveOf(lines);
  EXPECT_FALSE(std::isnan(curve.points[1].nfe3));
  EXPECT_TRUE(std::isnan(curve.points[2].nfe3));
  EXPECT_TRUE(std::isnan(curve.points[3].nfe3));
  EXPECT_TRUE(std::isnan(CurveOf({}).final_reward));
  EXPECT_FALSE(Reached(CurveOf({}), 0).has_value());
}

// Groups that others replaced were sampled, too.
TEST(LearningCurveTest, ImagesAreThoseThatWereMade) {
  Lines lines = RunWith({0.1, 0.2});
  EXPECT_EQ(CurveOf(lines).points[1].images, 128);
  lines[2]["rollout/samples"] = 96;
  EXPECT_EQ(CurveOf(lines).points[1].images, 64 + 96);
}

TEST(LearningCurveTest, ACollapseIsSeenAndADipIsNot) {
  EXPECT_TRUE(Collapsed(CurveOf(RunWith({0.5, 0.9, 0.9, 0.9, 0.3, 0.1, 0.1}))));
  EXPECT_FALSE(Collapsed(CurveOf(RunWith({0.5, 0.9, 0.9, 0.1, 0.9, 0.9, 0.9}))));
  EXPECT_FALSE(Collapsed(CurveOf({})));
}

TEST(LearningCurveTest, PromptsOfOneValueHaveACurveOfTheirOwn) {
  Lines lines = RunWith({0.2, 0.4, 0.6, 0.8});
  for (int i = 0; i <= 6; i += 2) lines[i]["eval/by_hard_mean"] = 0.1 * i / 2;
  lines[6]["eval/by_late_mean"] = 1;
  const LearningCurve curve = CurveOf(lines);
  EXPECT_NEAR(MeanReward(curve), 0.5, 1e-12);
  ASSERT_EQ(curve.by.size(), 2u);
  const LearningCurve hard = CurveOfValue(curve, "hard");
  ASSERT_EQ(hard.points.size(), 4u);
  EXPECT_NEAR(hard.points[3].reward, 0.3, 1e-12);
  EXPECT_NEAR(hard.final_reward, 0.2, 1e-12);
  EXPECT_EQ(Reached(hard, 0.19)->step, 6);
  EXPECT_EQ(hard.points[3].images, curve.points[3].images);
  EXPECT_TRUE(std::isnan(curve.by.at("late")[0])) << "not measured is not 0";
}

}  // namespace
}  // namespace oxbow::io
