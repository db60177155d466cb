// SPDX-License-Identifier: Apache-2.0
// The task that measures a run.
#include <gtest/gtest.h>

#include <initializer_list>

#include "run/rewards.h"

namespace oxbow::run {
namespace {

v1::RewardConfig Terms(std::initializer_list<const char*> names) {
  v1::RewardConfig reward;
  for (const char* const name : names) reward.add_terms()->set_name(name);
  return reward;
}

TEST(MeasuredTaskTest, ATaskMeasuresARunOfItsOwnRewardsAlone) {
  const reward::SyntheticTask* const digits =
      MeasuredTask(Terms({"digits_ocr", "digits_strict"}), "text 473");
  ASSERT_NE(digits, nullptr);
  EXPECT_EQ(digits->name(), "digits");
  EXPECT_EQ(MeasuredTask(Terms({"brightness"}), "text 473"), nullptr);
  EXPECT_EQ(MeasuredTask(Terms({"digits_ocr", "brightness"}), "text 473"), nullptr);
  EXPECT_EQ(MeasuredTask(Terms({"plates_reader"}), "text 473"), nullptr) << "of another task";
  EXPECT_EQ(MeasuredTask(Terms({"digits_ocr"}), "a cat on a mat"), nullptr);
}

TEST(MeasuredTaskTest, ANameThatIsAnotherRewardDoesNotCount) {
  v1::RewardConfig elsewhere = Terms({"digits_ocr"});
  elsewhere.add_endpoints("127.0.0.1:7072");
  EXPECT_EQ(MeasuredTask(elsewhere, "text 473"), nullptr);
  v1::RewardConfig renamed = Terms({"digits_ocr"});
  v1::ScorerConfig& entry = *renamed.add_scorers();
  entry.set_name("digits_ocr");
  EXPECT_NE(MeasuredTask(renamed, "text 473"), nullptr);
  entry.set_scorer("jpeg_size");
  EXPECT_EQ(MeasuredTask(renamed, "text 473"), nullptr);
}

}  // namespace
}  // namespace oxbow::run
