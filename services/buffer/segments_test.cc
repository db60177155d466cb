// SPDX-License-Identifier: Apache-2.0
// Large entries in segments: every byte is checked, room comes back, and crashes leave nothing.
#include "services/buffer/segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/philox.h"
#include "services/buffer/replay_store.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;

constexpr Epoch kEpoch(1);
constexpr size_t kLatentBytes = 1000;
constexpr uint64_t kSegment = 20'000;

class SegmentsTest : public ::testing::Test {
 protected:
  void Open(uint64_t capacity = 100) {
    store_.reset();
    store_ = ReplayStore::Open({.directory = path_,
                                .tables = {replay::BestTable(capacity)},
                                .segments = {.entry_min = 1000, .file = kSegment}})
                 .value();
  }
  void Offer(uint64_t id, uint64_t prompt, double reward) {
    const auto report = store_->Offer(kEpoch, {TestEntry(id, prompt, 0, reward, kLatentBytes)});
    ASSERT_TRUE(report.ok()) << report.status();
  }
  bool IsWhole(uint64_t id) {
    const Entry wanted = TestEntry(id, 0, 0, 0, kLatentBytes);
    const auto entry = store_->Find(EntryId(id), /*conditioning=*/true);
    const auto latents = store_->ReadLatents(EntryId(id), 0, 3);
    return entry.ok() && latents.ok() && entry->conditioning == wanted.conditioning &&
           *latents == wanted.latents;
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& file : fs::recursive_directory_iterator(path_)) {
      if (file.path().extension() == kSegmentExtension) files.push_back(file.path());
    }
    return files;
  }
  uint64_t FileBytes() const {
    uint64_t bytes = 0;
    for (const fs::path& file : Files()) bytes += fs::file_size(file);
    return bytes;
  }
  static void TurnByte(const fs::path& path, uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
  }

  const oxbow::testing::ScopedDirectory directory_{oxbow::testing::ScopedDirectory::Memory()};
  const fs::path path_ = directory_.path() / "store";
  std::unique_ptr<ReplayStore> store_;
};

// Promise: An acknowledged offer stays.
TEST_F(SegmentsTest, AnyByteThatTurnsIsFound) {
  Open();
  Offer(7, 1, 1);
  ASSERT_EQ(Files().size(), 1u);
  const fs::path file = Files()[0];
  const uint64_t size = fs::file_size(file);
  const Entry record = *store_->Find(EntryId(7));
  ASSERT_EQ(size, SegmentBytes(record)) << "a part is written once";
  const SegmentReader reader(file.parent_path(), nullptr);
  ASSERT_TRUE(reader.Raw(record).ok());
  // Every byte of a header, then samples.
  for (uint64_t at = 0; at < size; at += at % 1024 < 24 ? 1 : 37) {
    TurnByte(file, at);
    EXPECT_TRUE(absl::IsDataLoss(reader.Raw(record).status())) << at;
    TurnByte(file, at);
  }
  fs::resize_file(file, size - 1);
  EXPECT_TRUE(absl::IsDataLoss(reader.Conditioning(record).status()));
  EXPECT_TRUE(reader.Latents(record, 0, 3).ok());
}

// Each on its own costs one fsync; of many, what the log need not have is written once.
TEST_F(SegmentsTest, SmallEntriesOfALargeBatchLieInASegmentAndOthersInTheLog) {
  const auto open = [&] { return ReplayStore::Open({.directory = path_}).value(); };
  auto store = open();
  const auto in_segment = [&](uint64_t id) {
    return store->Find(EntryId(id))->location.segment != 0;
  };
  std::vector<Entry> many;
  for (uint64_t id = 1; id <= 500; ++id) many.push_back(TestEntry(id, id, 0, 1, kLatentBytes));
  many.push_back(TestEntry(501, 501, 0, 1, 4));
  ASSERT_TRUE(store->Offer(kEpoch, many).ok());
  for (uint64_t id = 502; id <= 505; ++id) {
    ASSERT_TRUE(store->Offer(kEpoch, {TestEntry(id, id, 0, 1, kLatentBytes)}).ok());
    EXPECT_FALSE(in_segment(id)) << id;
  }
  EXPECT_FALSE(in_segment(1));
  EXPECT_TRUE(in_segment(500));
  EXPECT_FALSE(in_segment(501)) << "it is smaller than what a segment adds";
  store.reset();
  store = open();
  for (const uint64_t id : {1, 250, 500}) {
    EXPECT_EQ(store->ReadLatents(EntryId(id), 0, 3).value(),
              TestEntry(id, id, 0, 1, kLatentBytes).latents);
  }
}

// Entries are replaced at random, as they are in `best`: what is gone gives its room back.
TEST_F(SegmentsTest, RoomComesBackAndEveryEntryStays) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    fs::remove_all(path_);
    Open();
    RandomStream random({.seed = seed});
    std::map<uint64_t, uint64_t> of_prompt;
    for (uint64_t id = 1; id <= 1500; ++id) {
      const uint64_t prompt = random.NextBelow(60);
      Offer(id, prompt, static_cast<double>(id));
      of_prompt[prompt] = id;
      if (id % 100 == 0) {
        const uint64_t live = of_prompt.size() * SegmentBytes(*store_->Find(EntryId(id)));
        EXPECT_LE(FileBytes(), 2 * live + 3 * kSegment) << id;
      }
      if (id % 500 == 0) Open();
    }
    for (const auto& [_, id] : of_prompt) EXPECT_TRUE(IsWhole(id)) << id;
    EXPECT_EQ(store_->Info().entries, of_prompt.size());
    EXPECT_EQ(store_->Info().damaged, 0u);
  }
}

TEST_F(SegmentsTest, ADamagedEntryLeavesWhenItIsToBeCopied) {
  Open();
  Offer(1, 1, 1);
  TurnByte(Files().at(0), 500);
  // Two thirds of what is written next to it goes.
  for (uint64_t id = 2; id <= 200; ++id) Offer(id, 2 + id % 3, static_cast<double>(id));
  EXPECT_EQ(store_->Info().damaged, 1u);
  EXPECT_TRUE(absl::IsNotFound(store_->Find(EntryId(1)).status()));
  for (uint64_t id = 198; id <= 200; ++id) EXPECT_TRUE(IsWhole(id)) << id;
}

TEST_F(SegmentsTest, ACheckpointKeepsWhatTheStoreHasLost) {
  Open();
  for (uint64_t id = 1; id <= 30; ++id) Offer(id, id, 1);
  ASSERT_TRUE(store_->Checkpoint(kEpoch, "c", 1).ok());
  for (uint64_t id = 101; id <= 300; ++id) Offer(id, id % 30 + 1, static_cast<double>(id));
  EXPECT_TRUE(absl::IsNotFound(store_->Find(EntryId(1)).status()));
  ASSERT_TRUE(store_->Restore(kEpoch, "c").ok());
  for (uint64_t id = 1; id <= 30; ++id) EXPECT_TRUE(IsWhole(id)) << id;
  Offer(400, 1, 2);
  EXPECT_TRUE(IsWhole(400));
  Open();
  EXPECT_TRUE(IsWhole(400));
  EXPECT_EQ(store_->Info().entries, 30u);
}

TEST_F(SegmentsTest, FilesThatNoRecordNamesAreDeletedAtTheStart) {
  Open();
  Offer(1, 1, 1);
  const fs::path live = Files().at(0).parent_path();
  store_.reset();
  std::ofstream(live / "000077.segment") << "left by a crash";
  Open();
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_TRUE(IsWhole(1));
  Offer(2, 2, 1);
  EXPECT_TRUE(IsWhole(2));
}

TEST_F(SegmentsTest, AMissingFileIsDamageOfItsEntriesAlone) {
  Open();
  for (uint64_t id = 1; id <= 20; ++id) Offer(id, id, 1);
  ASSERT_GT(Files().size(), 1u);
  fs::path first = Files()[0];
  for (const fs::path& file : Files()) first = std::min(first, file);
  store_.reset();
  fs::remove(first);
  Open();
  int whole = 0;
  for (uint64_t id = 1; id <= 20; ++id) whole += IsWhole(id) ? 1 : 0;
  EXPECT_GT(whole, 0);
  EXPECT_LT(whole, 20);
  EXPECT_EQ(store_->Info().entries, static_cast<uint64_t>(whole)) << "the others left";
}

}  // namespace
}  // namespace oxbow::buffer
