// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/reshard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/philox.h"
#include "services/buffer/replay_store.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const Caller kCaller{Epoch(3), "run-of-this-test"};
constexpr char kQueue[] = "groups";

class ReshardTest : public ::testing::Test {
 protected:
  static std::unique_ptr<ReplayStore> Open(const fs::path& path) {
    return ReplayStore::Open(
               {.directory = path,
                .tables = {replay::BestTable(1000), {.name = kQueue, .capacity = 1000}}})
        .value();
  }
  std::vector<fs::path> Paths(const std::string& name, size_t shards) const {
    std::vector<fs::path> paths;
    for (size_t i = 0; i < shards; ++i) {
      paths.push_back(directory_.path() / absl::StrCat(name, "-", i));
    }
    return paths;
  }

  // A few steps of a run whose prompts live on so many shards; one entry in five is large.
  void Fill(const std::vector<fs::path>& shards, uint64_t seed) {
    RandomStream random({.seed = seed});
    std::vector<std::unique_ptr<ReplayStore>> stores;
    for (size_t i = 0; i < shards.size(); ++i) {
      stores.push_back(Open(shards[i]));
      ASSERT_TRUE(stores[i]
                      ->Restore(kCaller, "",
                                {.shards = static_cast<uint32_t>(shards.size()),
                                 .shard = static_cast<uint32_t>(i)})
                      .ok());
    }
    std::vector<EntryId> ids;
    for (uint64_t step = 0; step < 5; ++step) {
      for (int i = 0; i < 12; ++i) {
        const uint64_t prompt = random.NextBelow(40);
        const uint64_t id = 1 + ids.size();
        Entry entry = TestEntry(id, prompt, step, random.NextNormal(), i % 5 == 0 ? 30'000 : 40);
        if (i % 4 == 0) entry.table = kQueue;
        ids.push_back(entry.id);
        ASSERT_TRUE(stores[prompt % shards.size()]->Offer(kCaller, {entry}).ok());
      }
      const EntryId used = ids[random.NextBelow(ids.size())];
      const EntryId again = ids[random.NextBelow(ids.size())];
      for (const auto& store : stores) {
        ASSERT_TRUE(store->Draw(kCaller, LearnerStep(step), 2, seed).ok());
        ASSERT_TRUE(store
                        ->Advance(kCaller, LearnerStep(step), std::vector{used}, {},
                                  std::vector<Rescored>{{again, random.NextNormal(), true}})
                        .ok());
      }
    }
  }

  using Contents = std::map<std::string, std::vector<std::pair<Entry, std::string>>>;

  // Shards do not know which of two entries of one step another shard had before.
  static void SortWithinSteps(std::vector<std::pair<Entry, std::string>>& entries) {
    const auto birth = [](const auto& a, const auto& b) { return a.first.birth < b.first.birth; };
    EXPECT_TRUE(std::is_sorted(entries.begin(), entries.end(), birth));
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first.birth, a.first.id) < std::pair(b.first.birth, b.first.id);
    });
  }

  // Everything of every entry, by table and step.
  static Contents Content(const fs::path& path) {
    Contents content;
    const auto store = Open(path);
    for (const char* table : {replay::kBestTable, kQueue}) {
      const std::vector<Entry> entries = store->List(1000, EntryId(0), table).value();
      for (const Entry& listed : entries) {
        Entry entry = store->Find(listed.id, /*conditioning=*/true).value();
        entry.location = {};
        entry.place = 0;
        const std::string latents = store->ReadLatents(entry.id, 0, entry.latent_count).value();
        content[table].emplace_back(entry, latents);
      }
      SortWithinSteps(content[table]);
    }
    return content;
  }

  static void ExpectSame(const Contents& found, const Contents& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [table, entries] : wanted) {
      const auto& others = found.at(table);
      ASSERT_EQ(others.size(), entries.size()) << table;
      for (size_t i = 0; i < entries.size(); ++i) {
        const auto& [entry, latents] = entries[i];
        const auto& [other, other_latents] = others[i];
        SCOPED_TRACE(absl::StrCat(table, " ", i, ": entry ", entry.id.value, " uses ", entry.uses));
        ASSERT_EQ(other.id, entry.id);
        EXPECT_EQ(other.rescored, entry.rescored);
        EXPECT_EQ(other.uses, entry.uses);
        EXPECT_EQ(other.last_used, entry.last_used);
        EXPECT_EQ(other.retired, entry.retired);
        EXPECT_EQ(other.priority, entry.priority);
        EXPECT_EQ(other, entry);
        EXPECT_EQ(other_latents, latents);
      }
    }
  }

  const oxbow::testing::ScopedDirectory directory_{oxbow::testing::ScopedDirectory::Memory()};
};

// Promise: Another number of shards loses nothing. `oxbow replay reshard` puts every entry on the
// shard of its prompt with its age, uses, rewards, bytes and place in its queue; ids stay known.
// Back again, each shard holds what it held. Each new shard knows all ids, the latest step, epoch
// and forgotten step of all old ones; of a prompt that was on two shards the better entry stays.
// Shards of several runs, not all of a run's in their order, and one that is named twice or beside
// its copy are refused. The new ones appear when all of them are whole, also where the power goes
// on the way.
TEST_F(ReshardTest, EveryEntryIsOnTheShardOfItsPromptAsItWasAndComesBack) {
  for (const auto& [shards, others] : {std::pair(1, 3), std::pair(3, 1), std::pair(2, 5)}) {
    SCOPED_TRACE(::testing::Message() << shards << " to " << others);
    const std::string name = absl::StrCat(shards, "to", others);
    const auto from = Paths(name + "from", static_cast<size_t>(shards));
    const auto to = Paths(name + "to", static_cast<size_t>(others));
    const auto back = Paths(name + "back", static_cast<size_t>(shards));
    ASSERT_NO_FATAL_FAILURE(Fill(from, static_cast<uint64_t>(10 * shards + others)));
    const auto there = Reshard(from, to);
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_GT(there->entries, 20u);
    EXPECT_EQ(there->left_out, 0u);
    for (size_t i = 0; i < to.size(); ++i) {
      const StoreInfo info = Open(to[i])->Info();
      EXPECT_EQ(info.step, LearnerStep(5));
      EXPECT_EQ(info.owner,
                (Owner{kCaller.run, static_cast<uint32_t>(others), static_cast<uint32_t>(i)}));
      for (const auto& [table, entries] : Content(to[i])) {
        for (const auto& [entry, latents] : entries) {
          EXPECT_EQ(entry.prompt.value % to.size(), i);
        }
      }
    }
    ASSERT_TRUE(Reshard(to, back).ok());
    for (size_t i = 0; i < from.size(); ++i) ExpectSame(Content(back[i]), Content(from[i]));
  }
}

// Promise: Another number of shards loses nothing.
TEST_F(ReshardTest, AnIdThatWasOfferedIsKnownToEveryNewShard) {
  const auto from = Paths("from", 2);
  ASSERT_NO_FATAL_FAILURE(Fill(from, 1));
  const auto to = Paths("to", 3);
  ASSERT_TRUE(Reshard(from, to).ok());
  for (const fs::path& path : to) {
    const auto offered = Open(path)->Offer(kCaller, {TestEntry(1, 7, 0, 100)});
    ASSERT_TRUE(offered.ok()) << offered.status();
    EXPECT_EQ(offered->results[0].outcome, Outcome::kDuplicate);
  }
}

// Promise: Another number of shards loses nothing.
TEST_F(ReshardTest, ShardsOfAnotherOrderOrRunAndExistingDirectoriesAreRefused) {
  const auto from = Paths("from", 2);
  ASSERT_NO_FATAL_FAILURE(Fill(from, 1));
  const auto to = Paths("to", 1);
  const absl::Status order = Reshard({from[1], from[0]}, to).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(order)) << order;
  EXPECT_THAT(order.message(), HasSubstr("is shard 1 of 2"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Reshard({from[0]}, to).status()));
  EXPECT_TRUE(absl::IsNotFound(Reshard({directory_.path() / "none"}, to).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(Reshard(from, from).status()));
}

// Promise: Another number of shards loses nothing.
TEST_F(ReshardTest, NoShardIsThereBeforeAllOfThemAreWhole) {
  const auto from = Paths("from", 2);
  ASSERT_NO_FATAL_FAILURE(Fill(from, 1));
  auto to = Paths("to", 2);
  const fs::path blocked = directory_.path() / "blocked";
  ASSERT_TRUE(WriteFileAtomically(blocked, "no directory").ok());
  EXPECT_FALSE(Reshard(from, {to[0], blocked / "to-1"}).ok());
  EXPECT_FALSE(fs::exists(to[0]));
  // Killed at the end of one shard, in the middle of another.
  const fs::path left = to[0].string() + ".unfinished";
  ASSERT_TRUE(Reshard(from, Paths("other", 2)).ok());
  fs::remove_all(left);
  fs::rename(Paths("other", 2)[1], left);
  const auto report = Reshard(from, to);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(fs::exists(left));
  uint64_t entries = 0;
  for (const fs::path& path : to) {
    for (const auto& [table, of_table] : Content(path)) entries += of_table.size();
  }
  EXPECT_EQ(entries, report->entries);
}

}  // namespace
}  // namespace oxbow::buffer
