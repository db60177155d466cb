// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/learner/loop/score_watch.h"

namespace oxbow::learner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Group GroupOf(const std::map<std::string, double>& scores) {
  v1::Group group;
  v1::Trajectory& trajectory = *group.add_trajectories();
  for (const auto& [name, value] : scores) {
    v1::NamedValue& score = *trajectory.add_rewards();
    score.set_name(name);
    score.set_value(value);
  }
  return group;
}

TEST(RangeWatchTest, AScoreOutsideOfTheDeclaredRangeIsToldOnceForEachReward) {
  RangeWatch watch({{"a", {.name = "a", .value_min = 0, .value_max = 1}},
                    {"b", {.name = "b", .value_min = -1, .value_max = 1}}});
  EXPECT_THAT(watch.Look(GroupOf({{"a", 1.00001}, {"b", -1}})), IsEmpty());
  EXPECT_THAT(watch.Look(GroupOf({{"a", 17}, {"b", 0}})),
              ElementsAre(HasSubstr("reward a gave 17, and its server declares 0 to 1")));
  EXPECT_THAT(watch.Look(GroupOf({{"a", 18}, {"b", -1.5}})),
              ElementsAre(HasSubstr("reward b gave -1.5, and its server declares -1 to 1")));
}

TEST(RangeWatchTest, ARewardThatDeclaresNoRangeIsNotWatched) {
  RangeWatch watch({{"a", {.name = "a", .value_min = 0, .value_max = 0}}});
  EXPECT_THAT(watch.Look(GroupOf({{"a", 17}, {"other", 5}})), IsEmpty());
}

}  // namespace
}  // namespace oxbow::learner
