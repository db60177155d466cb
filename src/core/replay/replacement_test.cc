// SPDX-License-Identifier: Apache-2.0
// The order of the three questions, and that ties keep the old entry.
#include <gtest/gtest.h>

#include "core/replay/table_policy.h"

namespace oxbow::replay {
namespace {

const Occupant kSame{EntryId(1), 0.5};
const Occupant kLowest{EntryId(2), 0.1};

Decision Offer(double reward, std::optional<Occupant> same, uint64_t size, uint64_t capacity) {
  return Decide({.candidate_reward = reward,
                 .same_prompt = same,
                 .lowest = size > 0 ? std::optional(kLowest) : std::nullopt,
                 .size = size,
                 .capacity = capacity});
}

TEST(ReplacementTest, SamePromptIsComparedWithItselfAloneEvenWithRoom) {
  EXPECT_EQ(Offer(0.6, kSame, 2, 4).verdict, Verdict::kReplace);
  EXPECT_EQ(Offer(0.6, kSame, 2, 4).victim, kSame.id);
  EXPECT_EQ(Offer(0.4, kSame, 2, 4).verdict, Verdict::kReject);
  EXPECT_EQ(Offer(0.4, kSame, 4, 4).verdict, Verdict::kReject);  // Though above the lowest.
}

TEST(ReplacementTest, RoomTakesAnything) {
  EXPECT_EQ(Offer(-100, std::nullopt, 0, 1).verdict, Verdict::kInsert);
  EXPECT_EQ(Offer(-100, std::nullopt, 3, 4).verdict, Verdict::kInsert);
}

TEST(ReplacementTest, FullComparesWithTheLowest) {
  EXPECT_EQ(Offer(0.2, std::nullopt, 4, 4).verdict, Verdict::kReplace);
  EXPECT_EQ(Offer(0.2, std::nullopt, 4, 4).victim, kLowest.id);
  EXPECT_EQ(Offer(0.05, std::nullopt, 4, 4).verdict, Verdict::kReject);
}

TEST(ReplacementTest, TieKeepsTheOld) {
  EXPECT_EQ(Offer(kSame.priority, kSame, 4, 4).verdict, Verdict::kReject);
  EXPECT_EQ(Offer(kLowest.priority, std::nullopt, 4, 4).verdict, Verdict::kReject);
}

}  // namespace
}  // namespace oxbow::replay
