// SPDX-License-Identifier: Apache-2.0
#include "base/byte_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace oxbow {
namespace {

// Promise: A busy server costs no group.
TEST(ByteBudgetTest, PlacesAreServedInTheirOrderAndALargeOneIsNotPassed) {
  ByteBudget budget(10);
  std::vector<int> served;
  const auto ask = [&](int who, uint64_t bytes) {
    return std::make_unique<ByteBudget::Place>(budget, bytes,
                                               [&served, who] { served.push_back(who); });
  };
  auto first = ask(1, 6);
  EXPECT_EQ(served, std::vector<int>({1}));
  auto large = ask(2, 10);
  auto small = ask(3, 2);
  EXPECT_EQ(served, std::vector<int>({1})) << "2 bytes would fit, but the larger one came first";
  ByteBudget::Hold hold;
  EXPECT_FALSE(small->Take(hold));
  ASSERT_TRUE(first->Take(hold));
  EXPECT_EQ(hold.bytes(), 6u);
  ByteBudget::Hold part = hold.Split(4);
  hold = {};
  EXPECT_EQ(budget.used(), 4u);
  part = {};
  EXPECT_EQ(served, std::vector<int>({1, 2}));
  large.reset();  // Granted and never taken: it comes back.
  EXPECT_EQ(served, std::vector<int>({1, 2, 3}));
  auto leaver = ask(4, 9);
  auto last = ask(5, 8);
  leaver.reset();
  EXPECT_EQ(served, std::vector<int>({1, 2, 3, 5})) << "who leaves the line holds up nobody";
  EXPECT_EQ(budget.used(), 10u);
  small.reset();
  last.reset();
  EXPECT_EQ(budget.used(), 0u);
}

TEST(ByteBudgetTest, WhoDoesNotWaitGetsTheBytesThatAreFreeOrNone) {
  ByteBudget budget(10);
  std::optional<ByteBudget::Hold> first = budget.TryTake(7);
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(budget.TryTake(4).has_value());
  EXPECT_FALSE(budget.TryTake(uint64_t{0} - 1).has_value());
  EXPECT_TRUE(budget.TryTake(3).has_value());
  EXPECT_EQ(budget.used(), 7u) << "the second hold is gone";
  first.reset();
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace oxbow
