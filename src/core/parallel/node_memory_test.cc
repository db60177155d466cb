// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/node_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/parallel/ranks.h"
#include "tests/testing/forked_ranks.h"

namespace oxbow::parallel {
namespace {

using ::testing::Each;

constexpr size_t kBytes = 3 << 12;

// Processes, each with a mapping of its own.
TEST(NodeMemoryTest, RanksOfAMachineReadWhatOneOfThemWrites) {
  const auto body = [](Ranks& ranks) {
    const auto memory = NodeMemory::Share(ranks, kBytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ((*memory)->bytes(), kBytes);
    EXPECT_EQ((*memory)->place(), ranks.rank());
    EXPECT_EQ((*memory)->count(), ranks.size());
    const auto at = [&](int rank) -> std::byte& {
      return (*memory)->data()[static_cast<size_t>(rank) << 12];
    };
    EXPECT_EQ(at(ranks.rank()), std::byte{0});
    at(ranks.rank()) = static_cast<std::byte>(ranks.rank() + 1);
    ASSERT_TRUE(ranks.Barrier().ok());
    for (int rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_EQ(at(rank), static_cast<std::byte>(rank + 1)) << "by rank " << rank;
    }
    ASSERT_TRUE(ranks.Barrier().ok());
  };
  EXPECT_THAT(RunRanks(3, {}, body), Each(0));
}

TEST(NodeMemoryTest, ARankAloneHasItsOwn) {
  const auto alone = MakeSingleRank();
  const auto memory = NodeMemory::Share(*alone, kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->count(), 1);
  (*memory)->data()[kBytes - 1] = std::byte{7};
  (*memory)->Pin(kBytes);
  EXPECT_EQ((*memory)->data()[kBytes - 1], std::byte{7});
}

}  // namespace
}  // namespace oxbow::parallel
