// SPDX-License-Identifier: Apache-2.0
// Tables are those that the options declare.
#include "services/buffer/replay_store.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

using replay::InsertPolicy;
using replay::TablePolicy;

constexpr char kGroups[] = "groups";

std::vector<TablePolicy> WithBest(const TablePolicy& table) {
  return {replay::BestTable(2), table};
}

TEST(ReplayStoreTest, UndeclaredTablesAreRefusedAndEmptiedAtTheStart) {
  const testing::ScopedDirectory directory{testing::ScopedDirectory::Memory()};
  Entry entry = TestEntry(7, 1, 0, 0.5);
  entry.table = kGroups;
  {
    const auto store =
        ReplayStore::Open({.directory = directory.path(), .tables = WithBest({.name = kGroups})})
            .value();
    EXPECT_EQ(store->Offer(Epoch(1), {entry})->results[0].outcome, Outcome::kInserted);
    entry.id = EntryId(8);
    entry.table = "unheard";
    const OfferResult result = store->Offer(Epoch(1), {entry})->results[0];
    EXPECT_EQ(result.outcome, Outcome::kRejectedInvalid);
    EXPECT_EQ(result.error, "table is not declared in the buffer's config: unheard");
    EXPECT_TRUE(absl::IsNotFound(store->Draw(Epoch(1), LearnerStep(1), 1, 1, "unheard").status()));
  }
  {
    const auto without = ReplayStore::Open({.directory = directory.path()}).value();
    EXPECT_TRUE(absl::IsNotFound(without->Find(EntryId(7)).status()));
  }
  const auto again =
      ReplayStore::Open({.directory = directory.path(), .tables = WithBest({.name = kGroups})})
          .value();
  EXPECT_EQ(again->Info().tables[1].entries, 0u);
}

// Promise: A success that new tails destroy leaves.
TEST(ReplayStoreTest, ASuccessThatItsNewTailsDestroyCountsLessAndThenLeaves) {
  const testing::ScopedDirectory directory{testing::ScopedDirectory::Memory()};
  const auto open = [&] { return ReplayStore::Open({.directory = directory.path()}).value(); };
  const auto advance = [](ReplayStore& store, uint64_t step, Rescored rescored) {
    EXPECT_TRUE(store.Advance(Epoch(1), LearnerStep(step), {}, {}, {&rescored, 1}, 2).ok());
  };
  const EntryId kept(7), lost(8);
  {
    const auto store = open();
    ASSERT_TRUE(store->Offer(Epoch(1), {TestEntry(7, 1, 0, 1), TestEntry(8, 2, 0, 1)}).ok());
    advance(*store, 1, {.entry = kept, .reward = 0, .failed = true});
    EXPECT_EQ(store->Info().priority_min, 0) << "the new reward orders the table";
    EXPECT_EQ(store->Info().reward_mean, .5);
    advance(*store, 2, {.entry = kept, .reward = .75, .failed = false});
    advance(*store, 3, {.entry = lost, .reward = 0, .failed = true});
  }
  const auto store = open();  // Counts outlive the process.
  EXPECT_EQ(store->Find(kept)->value(), .75);
  EXPECT_EQ(store->Find(kept)->reward, 1) << "its first picture stays what it was";
  EXPECT_EQ(store->Find(lost)->failures, 1u);
  advance(*store, 4, {.entry = kept, .reward = 0, .failed = true});
  EXPECT_TRUE(store->Find(kept).ok()) << "a success between two failures starts again";
  advance(*store, 5, {.entry = lost, .reward = 0, .failed = true});
  EXPECT_TRUE(absl::IsNotFound(store->Find(lost).status()));
  const Rescored odd{.entry = kept, .reward = std::nan("")};
  EXPECT_TRUE(absl::IsInvalidArgument(
      store->Advance(Epoch(1), LearnerStep(6), {}, {}, {&odd, 1}).status()));
}

TEST(ReplayStoreTest, PoliciesThatAreNoQueueAreRefused) {
  const testing::ScopedDirectory directory{testing::ScopedDirectory::Memory()};
  for (const TablePolicy& policy : {TablePolicy{.name = "best"}, TablePolicy{.name = ""},
                                    TablePolicy{.name = "x", .insert = InsertPolicy::kBetter},
                                    TablePolicy{.name = "x", .capacity = 0}}) {
    const auto store =
        ReplayStore::Open({.directory = directory.path(), .tables = WithBest(policy)});
    EXPECT_TRUE(absl::IsInvalidArgument(store.status())) << store.status();
  }
}

}  // namespace
}  // namespace oxbow::buffer
