// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/learning_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oxbow::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const std::vector<RateScore> kScores = {{"a", 1e-3, {0.4, 0.6}},
                                        {"a", 2e-3, {0.45, 0.5}},
                                        {"b", 1e-3, {0.1}},
                                        {"b", 2e-3, {0.2, 0.4}},
                                        {"c", 1e-3, {}}};

TEST(LearningTuningTest, TheRateWithTheHighestMeanIsTaken) {
  EXPECT_THAT(BestRates(kScores), ElementsAre(Pair("a", 1e-3), Pair("b", 2e-3)));
  EXPECT_THAT(BestRates({{"a", 2e-3, {0.5}}, {"a", 1e-3, {0.5}}}), ElementsAre(Pair("a", 1e-3)));
}

TEST(LearningTuningTest, TheTableHasEveryRateOfEveryRecipe) {
  const std::string table = TuningTable(kScores);
  EXPECT_THAT(table, HasSubstr("2 for every recipe"));
  EXPECT_THAT(table, HasSubstr("| a | **0.500** | 0.475 |"));
  EXPECT_THAT(table, HasSubstr("| b | 0.100 | **0.300** |"));
  EXPECT_THAT(table, HasSubstr("| c | - | - |"));
}

}  // namespace
}  // namespace oxbow::cli
