// SPDX-License-Identifier: Apache-2.0
// A bad byte on the disk costs the entry it is in, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/buffer/replay_store.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

constexpr Epoch kEpoch(1);
constexpr size_t kPartBytes = 4000;    // In blob files, or in segments.
constexpr size_t kHeaderBytes = 5000;  // In a block of its own, whose checksum it may break.

// Turns a byte of `bytes` where a file of the live database holds them: by default a blob file or a
// segment.
void TurnByteOf(const fs::path& store, const std::string& bytes,
                const std::set<std::string>& extensions = {".blob", kSegmentExtension}) {
  int turned = 0;
  for (const auto& file : fs::recursive_directory_iterator(store)) {
    const std::string extension = file.path().extension();
    if (!extensions.contains(extension)) continue;
    if (!file.path().parent_path().filename().string().starts_with("live-")) continue;
    std::fstream blob(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(blob)),
                              std::istreambuf_iterator<char>());
    const size_t at = content.find(bytes);
    if (at == std::string::npos) continue;
    blob.clear();
    blob.seekp(static_cast<std::streamoff>(at + 7));
    blob.put(static_cast<char>(~content[at + 7]));
    ++turned;
  }
  ASSERT_EQ(turned, 1);
}

// With the entries in segments, or not.
class ReplayDamageTest : public ::testing::TestWithParam<bool> {
 protected:
  ReplayDamageTest() {
    for (uint64_t id = 1000; id <= 5000; id += 1000) EXPECT_TRUE(Offer({EntryOf(id)}).ok());
    EXPECT_TRUE(store_->Checkpoint(kEpoch, "flushed", 1).ok());
  }

  static Entry EntryOf(uint64_t id) {
    Entry entry = TestEntry(id, id, 0, 1, kPartBytes);
    entry.header = TestBytes(entry.id, 100, kHeaderBytes);
    entry.conditioning = TestBytes(entry.id, 101, kPartBytes);
    return entry;
  }
  absl::Status Offer(std::vector<Entry> entries) {
    return store_->Offer(kEpoch, std::move(entries)).status();
  }
  // Replaces entries with lower and higher ids than the sound ones: so the files of RocksDB overlap
  // and have to be merged.
  absl::Status Churn(uint64_t round) {
    std::vector<Entry> entries = {EntryOf(round), EntryOf(10'000 + round)};
    entries[0].prompt = PromptId(100 + round % 3);
    entries[1].prompt = PromptId(200 + round % 3);
    for (Entry& entry : entries) entry.reward = static_cast<double>(round);
    if (const absl::Status status = Offer(std::move(entries)); !status.ok()) return status;
    return store_->Checkpoint(kEpoch, "flushed", 1);
  }
  std::vector<uint64_t> Draw() {
    std::vector<uint64_t> ids;
    const auto drawn = store_->Draw(kEpoch, LearnerStep(1), 5, 1);
    EXPECT_TRUE(drawn.ok()) << drawn.status();
    if (!drawn.ok()) return ids;
    for (const Entry& entry : drawn->entries) ids.push_back(entry.id.value);
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  std::vector<uint64_t> Listed(const ReplayStore::Choose& choose) {
    const auto listed = store_->List(choose, replay::kBestTable);
    EXPECT_TRUE(listed.ok()) << listed.status();
    std::vector<uint64_t> ids;
    if (!listed.ok()) return ids;
    for (const Entry& entry : *listed) ids.push_back(entry.id.value);
    return ids;
  }

  const testing::ScopedDirectory directory_{testing::ScopedDirectory::Memory()};
  const std::unique_ptr<ReplayStore> store_ =
      ReplayStore::Open({.directory = directory_.path(),
                         .segments = {.entry_min = GetParam() ? uint64_t{1000} : kNever}})
          .value();
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
};

INSTANTIATE_TEST_SUITE_P(InSegments, ReplayDamageTest, ::testing::Bool());

// Promise: An acknowledged offer stays.
TEST_P(ReplayDamageTest, ADrawIsWithoutADamagedEntryWhichLeaves) {
  TurnByteOf(directory_.path(), EntryOf(3000).conditioning);
  EXPECT_TRUE(store_->Find(EntryId(3000)).ok()) << "without the damaged part";
  EXPECT_TRUE(absl::IsDataLoss(store_->Find(EntryId(3000), /*conditioning=*/true).status()));
  EXPECT_THAT(Draw(), ElementsAre(1000, 2000, 4000, 5000));
  EXPECT_THAT(Draw(), ElementsAre(1000, 2000, 4000, 5000)) << "the same step again";
  EXPECT_EQ(store_->Info().entries, 4u);
  EXPECT_EQ(store_->Info().damaged, 1u);
  ASSERT_TRUE(store_->Advance(kEpoch, LearnerStep(1), {}, {}).ok());
  EXPECT_EQ(store_->Info().retired, 0u);
  Entry better = EntryOf(6);
  better.prompt = PromptId(3000);
  EXPECT_EQ(store_->Offer(kEpoch, {better})->results[0].outcome, Outcome::kInserted)
      << "its prompt has room again";
}

// A page of damaged entries alone would say that the list has ended.
// Promise: Reuse beyond a drawn head keeps its bounds.
TEST_P(ReplayDamageTest, ALimitOfAListDoesNotCountDamagedEntries) {
  for (const uint64_t id : {2000, 3000})
    TurnByteOf(directory_.path(), EntryOf(id).header, {".sst"});
  const auto behind = [](const Table& table, const Table::Usable& take) {
    table.After(EntryId(1000), 2, take);
  };
  EXPECT_THAT(Listed(behind), ElementsAre(4000, 5000));
  EXPECT_EQ(store_->Info().damaged, 2u);
}

// Promise: Reuse beyond a drawn head keeps its bounds.
TEST_P(ReplayDamageTest, ALimitOfTheNewestDoesNotCountDamagedEntries) {
  for (const uint64_t id : {2000, 3000})
    TurnByteOf(directory_.path(), EntryOf(id).header, {".sst"});
  const auto newest = [](const Table& table, const Table::Usable& take) {
    table.Newest(LearnerStep(1), {}, EntryId(1000), LearnerStep(0), 1, take);
  };
  EXPECT_THAT(Listed(newest), ElementsAre(4000));
  EXPECT_EQ(store_->Info().damaged, 2u);
}

TEST_P(ReplayDamageTest, AReaderIsToldOfTheDamageOnceAndThenThatItIsGone) {
  TurnByteOf(directory_.path(), EntryOf(2000).latents.substr(kPartBytes, kPartBytes));
  EXPECT_TRUE(store_->ReadLatents(EntryId(2000), 0, 1).ok()) << "another latent";
  EXPECT_TRUE(absl::IsDataLoss(store_->ReadLatents(EntryId(2000), 1, 1).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->ReadLatents(EntryId(2000), 1, 1).status()));
  EXPECT_THAT(Draw(), ElementsAre(1000, 3000, 4000, 5000));
}

// Compaction moves old values to new files, so it reads them, and RocksDB writes no more after one
// that it cannot read.
// Promise: An acknowledged offer stays.
TEST_P(ReplayDamageTest, CompactionThatMeetsADamagedEntryDoesNotStopWrites) {
  if (GetParam()) GTEST_SKIP() << "RocksDB does not compact segments (segments_test.cc does)";
  TurnByteOf(directory_.path(), EntryOf(3000).conditioning);
  int refused = 0;
  uint64_t round = 1;
  for (; round < 300 && store_->Info().damaged == 0; ++round) refused += Churn(round).ok() ? 0 : 1;
  EXPECT_EQ(store_->Info().damaged, 1u) << refused << " calls refused";
  EXPECT_LE(refused, 3);
  for (const uint64_t end = round + 30; round < end; ++round) {
    const absl::Status status = Churn(round);
    ASSERT_TRUE(status.ok()) << status;
  }
  for (const uint64_t sound : {1000, 2000, 4000, 5000}) {
    const auto found = store_->Find(EntryId(sound), /*conditioning=*/true);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->conditioning, EntryOf(sound).conditioning);
  }
  EXPECT_TRUE(absl::IsNotFound(store_->Find(EntryId(3000)).status()));
}

}  // namespace
}  // namespace oxbow::buffer
