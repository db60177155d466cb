// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "services/learner/coordinator/leasing.h"

namespace oxbow::learner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ConditioningHoldersTest, TheLastWorkersOfAConditioningAreNamedTheNewestFirst) {
  ConditioningHolders holders({.conditionings_max = 9, .workers_max = 2});
  EXPECT_THAT(holders.Of("h"), IsEmpty());
  holders.Given("h", "a");
  holders.Given("h", "b");
  EXPECT_THAT(holders.Of("h"), ElementsAre("b", "a"));
  holders.Given("h", "a");
  EXPECT_THAT(holders.Of("h"), ElementsAre("a", "b")) << "nobody is named twice";
  holders.Given("h", "c");
  EXPECT_THAT(holders.Of("h"), ElementsAre("c", "a"));
  EXPECT_THAT(holders.Of("other"), IsEmpty());
}

// Promise: Memory is bounded.
TEST(ConditioningHoldersTest, ConditioningsThatWereLeasedLongestAgoAreForgotten) {
  ConditioningHolders holders({.conditionings_max = 3, .workers_max = 2});
  for (const char* hash : {"a", "b", "c"}) holders.Given(hash, "w");
  holders.Given("a", "w");
  holders.Given("d", "w");
  EXPECT_EQ(holders.conditionings(), 3u);
  EXPECT_THAT(holders.Of("b"), IsEmpty());
  EXPECT_THAT(holders.Of("a"), ElementsAre("w"));
  for (int i = 0; i < 1000; ++i) holders.Given(absl::StrCat(i), "w");
  EXPECT_EQ(holders.conditionings(), 3u);
}

}  // namespace
}  // namespace oxbow::learner
