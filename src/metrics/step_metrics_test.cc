// SPDX-License-Identifier: Apache-2.0
// A family's keys and values belong together.
#include "metrics/step_metrics.h"

#include <gtest/gtest.h>

namespace oxbow::metric {
namespace {

TEST(StepMetricsTest, AValueComesBackFromItsKeyAndOtherKeysHaveNone) {
  for (const StepMetricFamily& family :
       {kTimePhaseS, kTrainRewardNameMean, kTrainClipFracStepN, kEvalRewardNameMean}) {
    EXPECT_EQ(family.ValueIn(family.Of("digits_ocr")), "digits_ocr") << family.before;
    EXPECT_EQ(family.ValueIn(family.Of("")), std::nullopt) << family.before;
    EXPECT_EQ(family.ValueIn("x" + family.Of("7")), std::nullopt) << family.before;
    EXPECT_EQ(family.ValueIn(""), std::nullopt) << family.before;
  }
  EXPECT_EQ(kTrainRewardNameMean.ValueIn(kTrainRewardMean.name), std::nullopt);
  EXPECT_EQ(kTrainRewardNameMean.ValueIn(kEvalRewardNameMean.Of("a")), std::nullopt);
}

TEST(StepMetricsTest, NumbersOfEvaluationsAreToldApart) {
  EXPECT_TRUE(IsOfEvaluation(kEvalRewardNameMean.Of("a")));
  EXPECT_FALSE(IsOfEvaluation(kTimeEvalS.name));
}

}  // namespace
}  // namespace oxbow::metric
