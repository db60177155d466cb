// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "core/rl/training_plan.h"
#include "tests/golden/golden.h"

namespace oxbow::rl {
namespace {

// Promise: Reuse beyond a drawn head keeps its bounds.

// By hand: (R - p) / sqrt(p (1 - p) + .01).
TEST(ImitationTest, AdvantagesByHand) {
  EXPECT_NEAR(ImitationAdvantage(1, 0, 20), 10, 1e-12);
  EXPECT_NEAR(ImitationAdvantage(1, 0.125, 5), 0.875 / std::sqrt(0.119375), 1e-12);
  EXPECT_NEAR(ImitationAdvantage(1, 0.5, 5), 0.98058067569092, 1e-12);
  EXPECT_NEAR(ImitationAdvantage(0.75, 0.5, 5), 0.49029033784546, 1e-12);
  EXPECT_EQ(ImitationAdvantage(1, 1, 5), 0);
}

TEST(ImitationTest, GoldenOfAnotherImplementation) {
  for (const auto& r : testing::ReuseGolden()["imitation"]) {
    EXPECT_NEAR(ImitationAdvantage(r["reward"], r["rate"], r["limit"]), r["advantage"],
                testing::kGoldenTolerance);
    EXPECT_NEAR(ImitationScale(r["weight_max"], r["fresh"], r["added"]), r["scale"],
                testing::kGoldenTolerance);
  }
}

TEST(ImitationTest, ASuccessCountsAsInAnEndlessGroupOfItsPrompt) {
  // Mean p and population variance p (1 - p) of 0s and 1s, but for e.
  for (const double p : {0.1, 0.3, 0.7}) {
    EXPECT_NEAR(ImitationAdvantage(1, p, 100), (1 - p) / std::sqrt(p * (1 - p)),
                0.06 * (1 - p) / std::sqrt(p * (1 - p)))
        << p;
  }
}

TEST(ImitationTest, NothingStoredIsPushedAwayAndNoAdvantagePassesItsLimit) {
  EXPECT_EQ(ImitationAdvantage(0.2, 0.6, 3), 0);
  EXPECT_EQ(ImitationAdvantage(1, 0, 3), 3);
  EXPECT_EQ(ImitationAdvantage(1, -0.5, 20), ImitationAdvantage(1, 0, 20)) << "a rate is a share";
  EXPECT_EQ(ImitationAdvantage(1, 1.5, 3), 0);
}

TEST(ImitationTest, WeightsOfAddedSamplesStayUnderTheLiveFreshOnes) {
  EXPECT_EQ(ImitationScale(1, 64, 16), 1);
  EXPECT_EQ(ImitationScale(1, 8, 16), 0.5);
  EXPECT_EQ(ImitationScale(0.5, 8, 16), 0.25);
  EXPECT_EQ(ImitationScale(1, 0, 16), 0) << "imitation alone collapses";
  EXPECT_EQ(ImitationScale(1, 8, 0), 0);
  EXPECT_EQ(ImitationScale(0, 8, 4), 0);
}

}  // namespace
}  // namespace oxbow::rl
