// SPDX-License-Identifier: Apache-2.0
// Content of new shards, as a function of what the old ones held: compared record by record, for
// shards of one run that were never told how many they are, are at different steps and epochs, and
// share prompts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/philox.h"
#include "services/buffer/database.h"
#include "services/buffer/replay_directory.h"
#include "services/buffer/replay_state.h"
#include "services/buffer/replay_store.h"
#include "services/buffer/reshard.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kRun[] = "run-of-this-law";
constexpr char kQueue[] = "groups";
constexpr uint64_t kMany = 1000;

// The content of a directory, read from its records alone.
struct Shard {
  explicit Shard(const fs::path& path)
      : directory(ReplayDirectory::OpenForReading(path).value()),
        database(Database::OpenReadOnly(directory->FindLive()->path).value()),
        state(ReplayState::Load(*database, {}, {replay::BestTable(kMany)}).value()) {}

  // The entries of a table in its order, with their parts, and without where they lie.
  std::vector<Entry> Entries(const std::string& table) const {
    std::vector<Entry> entries;
    const auto found = state->tables().find(table);
    if (found == state->tables().end()) return entries;
    for (const auto& [place, record] : found->second.entries()) {
      Entry entry = record;
      entry.header = database->Header(entry.id).value();
      entry.conditioning = database->Conditioning(entry).value();
      entry.latents = database->Latents(entry, 0, entry.latent_count).value();
      entry.location = {};
      if (table != replay::kBestTable) entry.place = 0;
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  std::unique_ptr<ReplayDirectory> directory;
  std::unique_ptr<Database> database;
  std::unique_ptr<ReplayState> state;
};

using Ids = std::map<LearnerStep, std::set<EntryId>>;

Ids OfferedTo(const Shard& shard) {
  Ids ids;
  for (const auto& [step, of_step] : shard.state->offered().steps()) {
    ids[step].insert(of_step.begin(), of_step.end());
  }
  return ids;
}

// Promise: Another number of shards loses nothing.
class ReshardLawTest : public ::testing::Test {
 protected:
  std::vector<fs::path> Paths(const std::string& name, size_t shards) const {
    std::vector<fs::path> paths;
    for (size_t i = 0; i < shards; ++i) {
      paths.push_back(directory_.path() / absl::StrCat(name, "-", i));
    }
    return paths;
  }

  static std::unique_ptr<ReplayStore> Open(const fs::path& path, uint64_t remembered_steps = kMany,
                                           uint64_t capacity = kMany) {
    return ReplayStore::Open(
               {.directory = path,
                .tables = {replay::BestTable(capacity), {.name = kQueue, .capacity = capacity}},
                .remembered_steps = remembered_steps})
        .value();
  }

  // Prompts are on any of the shards. Each is at a step and an epoch of its own.
  void Fill(const fs::path& path, const std::string& run, RandomStream& random) {
    const Caller caller(Epoch(1 + random.NextBelow(9)), run);
    const auto store = Open(path, /*remembered_steps=*/1 + random.NextBelow(4));
    std::vector<EntryId> own;
    const uint64_t steps = 2 + random.NextBelow(6);
    for (uint64_t step = 0; step < steps; ++step) {
      for (uint64_t i = random.NextBelow(8); i > 0; --i) {
        Entry entry = TestEntry(++ids_, random.NextBelow(12), step, random.NextNormal(),
                                i == 1 ? 30'000 : 40);
        if (i % 3 == 0) entry.table = kQueue;
        own.push_back(entry.id);
        ASSERT_TRUE(store->Offer(caller, {entry}).ok());
      }
      std::vector<EntryId> used;
      std::vector<Rescored> rescored;
      if (!own.empty()) {
        used = {own[random.NextBelow(own.size())]};
        rescored = {{own[random.NextBelow(own.size())], random.NextNormal(), true}};
      }
      ASSERT_TRUE(store->Draw(caller, LearnerStep(step), 2, step).ok());
      ASSERT_TRUE(store->Advance(caller, LearnerStep(step), used, {}, rescored).ok());
    }
    ASSERT_TRUE(store->Draw(caller, LearnerStep(steps), 2, 0).ok());
  }

  // The entry of each prompt that counts most, by id.
  static std::vector<Entry> BestOf(const std::vector<Entry>& all) {
    std::map<PromptId, Entry> best;
    for (const Entry& entry : all) {
      const auto [found, first] = best.try_emplace(entry.prompt, entry);
      if (!first && entry.value() > found->second.value()) found->second = entry;
    }
    std::vector<Entry> entries;
    for (const auto& [prompt, entry] : best) entries.push_back(entry);
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.id < b.id; });
    return entries;
  }

  // All entries of the sources are there, by birth, and those of one source and step as they were.
  static void ExpectQueue(const std::vector<Entry>& found,
                          const std::vector<std::vector<Entry>>& of_sources) {
    std::map<EntryId, Entry> by_id;
    for (const Entry& entry : found) by_id[entry.id] = entry;
    size_t wanted = 0;
    for (const std::vector<Entry>& source : of_sources) {
      wanted += source.size();
      for (const Entry& entry : source) EXPECT_EQ(by_id[entry.id], entry) << entry.id.value;
      std::map<LearnerStep, std::vector<EntryId>> before, after;
      std::set<EntryId> ids;
      for (const Entry& entry : source)
        before[entry.birth].push_back(entry.id), ids.insert(entry.id);
      for (const Entry& entry : found) {
        if (ids.contains(entry.id)) after[entry.birth].push_back(entry.id);
      }
      EXPECT_EQ(after, before);
    }
    EXPECT_EQ(found.size(), wanted);
    EXPECT_TRUE(std::is_sorted(found.begin(), found.end(),
                               [](const Entry& a, const Entry& b) { return a.birth < b.birth; }));
  }

  static void ExpectLaw(const std::vector<fs::path>& from, const std::vector<fs::path>& to,
                        const ReshardReport& report) {
    std::vector<std::unique_ptr<Shard>> sources;
    for (const fs::path& path : from) sources.push_back(std::make_unique<Shard>(path));
    ClockRecord clock;
    LearnerStep forgotten;
    Ids known;
    size_t entries = 0;
    for (const auto& source : sources) {
      clock.step = std::max(clock.step, source->state->clock().step);
      clock.epoch = std::max(clock.epoch, source->state->clock().epoch);
      forgotten = std::max(forgotten, source->state->offered().forgotten());
      for (const auto& [step, ids] : OfferedTo(*source)) known[step].insert(ids.begin(), ids.end());
      entries += source->Entries(replay::kBestTable).size() + source->Entries(kQueue).size();
    }
    known.erase(known.begin(), known.lower_bound(forgotten));
    ReshardReport counted;
    for (size_t i = 0; i < to.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("new shard ", i));
      const Shard shard(to[i]);
      EXPECT_EQ(shard.state->clock(), clock);
      EXPECT_EQ(shard.state->owner(),
                (Owner{kRun, static_cast<uint32_t>(to.size()), static_cast<uint32_t>(i)}));
      EXPECT_EQ(shard.state->offered().forgotten(), forgotten);
      EXPECT_EQ(OfferedTo(shard), known);
      EXPECT_TRUE(shard.state->draws().empty());
      EXPECT_EQ(shard.state->retired(), 0u);
      std::vector<Entry> best;
      std::vector<std::vector<Entry>> queues;
      const auto here = [&](const Entry& entry) { return entry.prompt.value % to.size() == i; };
      for (const auto& source : sources) {
        const std::vector<Entry> all = source->Entries(replay::kBestTable);
        std::copy_if(all.begin(), all.end(), std::back_inserter(best), here);
        const std::vector<Entry> queue = source->Entries(kQueue);
        queues.emplace_back();
        std::copy_if(queue.begin(), queue.end(), std::back_inserter(queues.back()), here);
      }
      const std::vector<Entry> found = shard.Entries(replay::kBestTable);
      EXPECT_EQ(found, BestOf(best));
      const std::vector<Entry> queue = shard.Entries(kQueue);
      ExpectQueue(queue, queues);
      counted.entries += found.size() + queue.size();
      for (const auto* table : {&found, &queue}) {
        for (const Entry& entry : *table) counted.bytes += entry.bytes();
      }
    }
    EXPECT_EQ(report.entries, counted.entries);
    EXPECT_EQ(report.bytes, counted.bytes);
    EXPECT_EQ(report.left_out, entries - counted.entries);
  }

  const oxbow::testing::ScopedDirectory directory_{oxbow::testing::ScopedDirectory::Memory()};
  uint64_t ids_ = 0;
};

TEST_F(ReshardLawTest, NewShardsHoldTheUnionOfTheOldOnesWithTheBetterEntryOfAPrompt) {
  uint64_t left_out = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomStream random({.seed = seed});
    const auto from = Paths(absl::StrCat("from", seed), 1 + random.NextBelow(3));
    const auto to = Paths(absl::StrCat("to", seed), 1 + random.NextBelow(4));
    for (const fs::path& path : from) ASSERT_NO_FATAL_FAILURE(Fill(path, kRun, random));
    const auto report = Reshard(from, to);
    ASSERT_TRUE(report.ok()) << report.status();
    ExpectLaw(from, to, *report);
    left_out += report->left_out;
    // New shards are old ones to the next: what all of them know is known once.
    const auto again = Paths(absl::StrCat("again", seed), 1 + random.NextBelow(3));
    const auto second = Reshard(to, again);
    ASSERT_TRUE(second.ok()) << second.status();
    ExpectLaw(to, again, *second);
    EXPECT_EQ(second->left_out, 0u);
  }
  EXPECT_GT(left_out, 0u) << "no prompt was on two shards";
}

TEST_F(ReshardLawTest, AnEntryThatIsTooOldForTheIdsOfOneShardIsRefusedByAll) {
  const auto from = Paths("from", 2);
  for (const fs::path& path : from) {
    const auto store = Open(path, /*remembered_steps=*/path == from[0] ? 1 : kMany);
    for (uint64_t step = 0; step < 5; ++step) {
      ++ids_;
      ASSERT_TRUE(store->Offer(Caller(Epoch(1), kRun), {TestEntry(ids_, ids_, step, 1)}).ok());
      ASSERT_TRUE(store->Advance(Caller(Epoch(1), kRun), LearnerStep(step), {}, {}).ok());
    }
  }
  const auto to = Paths("to", 2);
  ASSERT_TRUE(Reshard(from, to).ok());
  for (const fs::path& path : to) {
    const auto offered = Open(path)->Offer(Caller(Epoch(1), kRun), {TestEntry(99, 99, 2, 1)});
    ASSERT_TRUE(offered.ok()) << offered.status();
    EXPECT_EQ(offered->results[0].outcome, Outcome::kRejectedInvalid);
    EXPECT_THAT(offered->results[0].error, HasSubstr("had to be forgotten"));
  }
}

TEST_F(ReshardLawTest, ShardsOfTwoRunsAreRefusedAndNothingIsLeft) {
  RandomStream random({.seed = 1});
  const auto from = Paths("from", 2);
  ASSERT_NO_FATAL_FAILURE(Fill(from[0], kRun, random));
  ASSERT_NO_FATAL_FAILURE(Fill(from[1], "another run", random));
  const auto to = Paths("to", 1);
  const absl::Status status = Reshard(from, to).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is of run another run"));
  EXPECT_FALSE(fs::exists(to[0]));
  EXPECT_FALSE(fs::exists(to[0].string() + ".unfinished"));
}

TEST_F(ReshardLawTest, AShardThatIsNamedTwiceOrCopiedIsRefusedAndNothingIsLeft) {
  RandomStream random({.seed = 1});
  const auto from = Paths("from", 1);
  ASSERT_NO_FATAL_FAILURE(Fill(from[0], kRun, random));
  const fs::path copy = directory_.path() / "copy";
  fs::copy(from[0], copy, fs::copy_options::recursive);
  const auto to = Paths("to", 1);
  for (const fs::path& second : {from[0], copy}) {
    const absl::Status status = Reshard({from[0], second}, to).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("on two of these shards"));
  }
  EXPECT_FALSE(Reshard(from, {to[0], to[0]}).ok());
  EXPECT_FALSE(fs::exists(to[0]));
}

TEST_F(ReshardLawTest, AStoreThatWasNeverSettledHoldsNothing) {
  const auto from = Paths("from", 1);
  {
    const auto directory = ReplayDirectory::Open(from[0]);
    ASSERT_TRUE(directory.ok()) << directory.status();
    ASSERT_TRUE(Database::Open((*directory)->NextLive(), /*create=*/true, nullptr).ok());
  }
  const absl::Status status = Reshard(from, Paths("to", 1)).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("holds nothing yet"));
}

// Where two run at once, the later one takes nothing from the other.
TEST_F(ReshardLawTest, WhatAnotherReshardIsWritingIsNotRemoved) {
  RandomStream random({.seed = 1});
  const auto from = Paths("from", 1);
  ASSERT_NO_FATAL_FAILURE(Fill(from[0], kRun, random));
  const auto to = Paths("to", 1);
  const fs::path under_way = to[0].string() + ".unfinished";
  const auto other = ReplayDirectory::Open(under_way);
  ASSERT_TRUE(other.ok()) << other.status();
  const fs::path file = under_way / "live-000001";
  fs::create_directories(file);
  const absl::Status status = Reshard(from, to).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(fs::exists(file));
  EXPECT_FALSE(fs::exists(to[0]));
}

// A part that cannot be read is found in the middle of the copy.
TEST_F(ReshardLawTest, DamageInASourceLeavesNoNewShardAndTheNextTryBeginsAnew) {
  const auto from = Paths("from", 1);
  {
    const auto store = Open(from[0]);
    for (uint64_t i = 1; i <= 6; ++i) {
      ASSERT_TRUE(store->Offer(Caller(Epoch(1), kRun), {TestEntry(i, i, 0, 1.0, 30'000)}).ok());
    }
  }
  const auto to = Paths("to", 3);
  fs::path segment;
  for (const auto& file : fs::recursive_directory_iterator(from[0])) {
    if (file.is_regular_file() && file.file_size() > 500'000) segment = file.path();
  }
  ASSERT_FALSE(segment.empty());
  const std::string whole = ReadFile(segment).value();
  std::string damaged = whole;
  damaged[damaged.size() - 50'000] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(segment, damaged).ok());
  const absl::Status status = Reshard(from, to).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  for (const fs::path& path : to) EXPECT_FALSE(fs::exists(path)) << path;
  ASSERT_TRUE(WriteFileAtomically(segment, whole).ok());
  const auto report = Reshard(from, to);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->entries, 6u);
  ExpectLaw(from, to, *report);
}

}  // namespace
}  // namespace oxbow::buffer
