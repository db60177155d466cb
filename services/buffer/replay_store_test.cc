// Tables are those that the options declare.
#include "services/buffer/replay_store.h"

#include <gtest/gtest.h>

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
