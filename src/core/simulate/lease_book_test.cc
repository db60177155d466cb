#include "core/simulate/lease_book.h"

#include <gtest/gtest.h>

namespace oxbow::simulate {
namespace {

TEST(LeaseBookTest, TheLowestPendingGroupIsGrantedUpToTheBudget) {
  LeaseBook book({.staleness_max = 1, .groups_per_step = 2}, 0);
  for (int i = 0; i < 3; ++i) book.PlanStep();
  for (uint64_t group = 0; group < 4; ++group) {
    ASSERT_TRUE(book.CanGrant(0));
    EXPECT_EQ(book.at(book.Grant(0, 0, 0)).group, group);
  }
  EXPECT_FALSE(book.CanGrant(0)) << "group 4 is of step 2, two ahead of the weights";
  EXPECT_TRUE(book.CanGrant(1));
}

TEST(LeaseBookTest, AnExpiredGroupComesBackAndItsLateResultIsFenced) {
  LeaseBook book({.staleness_max = 0, .groups_per_step = 2}, 0);
  book.PlanStep();
  const uint32_t lost = book.Grant(0, 0, 0);
  book.Grant(0, 0, 0);
  book.Expire(lost);
  const uint32_t again = book.Grant(1, 0, 5);
  EXPECT_EQ(book.at(again).group, 0u);
  EXPECT_NE(again, lost) << "the old worker still holds its lease";
  uint32_t other = 0;
  EXPECT_FALSE(book.Accept(lost, 6, other));
  EXPECT_TRUE(book.Accept(again, 7, other));
  EXPECT_FALSE(book.Accept(again, 8, other)) << "a result counts once";
}

TEST(LeaseBookTest, TheFirstOfTwoResultsWins) {
  LeaseBook book({.staleness_max = 0, .groups_per_step = 40}, 0.5);
  book.PlanStep();
  uint32_t other = 0;
  for (int i = 0; i < 20; ++i) book.Accept(book.Grant(0, 0, 0), 1, other);
  const uint32_t slow = book.Grant(0, 0, 1);
  EXPECT_FALSE(book.GrantSecond(1, 0, 1.5).has_value()) << "not late yet: half take 1 s";
  EXPECT_FALSE(book.GrantSecond(0, 0, 9).has_value()) << "the late worker itself is no help";
  const auto second = book.GrantSecond(1, 0, 9);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(book.at(*second).group, book.at(slow).group);
  EXPECT_FALSE(book.GrantSecond(2, 0, 9).has_value()) << "two are enough";
  EXPECT_TRUE(book.Accept(*second, 10, other));
  EXPECT_EQ(other, slow);
  EXPECT_EQ(book.at(slow).end, LeaseEnd::kSuperseded);
  EXPECT_EQ(book.running(), 0u);
}

TEST(LeaseBookTest, ARestartForgetsWhatNoCheckpointHolds) {
  LeaseBook book({.staleness_max = 1, .groups_per_step = 1}, 0);
  book.PlanStep();
  book.PlanStep();
  uint32_t other = 0;
  book.Accept(book.Grant(0, 0, 0), 1, other);
  book.Grant(0, 0, 0);
  EXPECT_TRUE(book.IsComplete(0));
  book.Restart(0);
  EXPECT_FALSE(book.IsComplete(0));
  EXPECT_FALSE(book.CanGrant(0));
  book.PlanStep();
  EXPECT_EQ(book.at(book.Grant(3, 0, 9)).group, 0u);
  EXPECT_EQ(book.counts().dropped, 1u);
}

}  // namespace
}  // namespace oxbow::simulate
