// SPDX-License-Identifier: Apache-2.0
// A Restore without a checkpoint: what it keeps, what leaves a copy, and for how long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "services/buffer/replay_directory.h"
#include "services/buffer/replay_store.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Epoch kEpoch(1);

class ReplayRestoreTest : public ::testing::Test {
 protected:
  // Entry 100 + step is born in each of the steps 0 to 5.
  ReplayRestoreTest() {
    for (uint64_t step = 0; step < 6; ++step) {
      EXPECT_TRUE(store_->Offer(kEpoch, {TestEntry(100 + step, step, step, 1)}).ok());
      EXPECT_TRUE(store_->Advance(kEpoch, LearnerStep(step), {}, {}).ok());
    }
  }

  std::vector<uint64_t> Ids() {
    std::vector<uint64_t> ids;
    const std::vector<Entry> entries = store_->List(100, EntryId(0)).value();
    for (const Entry& entry : entries) ids.push_back(entry.id.value);
    return ids;
  }
  std::vector<fs::path> Asides() const {
    std::vector<fs::path> found;
    for (const auto& child : fs::directory_iterator(directory_.path())) {
      if (child.path().filename().string().starts_with("aside-")) found.push_back(child.path());
    }
    return found;
  }

  const testing::ScopedDirectory directory_{testing::ScopedDirectory::Memory()};
  std::unique_ptr<ReplayStore> store_ = ReplayStore::Open({.directory = directory_.path()}).value();
};

TEST_F(ReplayRestoreTest, WithoutACheckpointWhatWasBornBeforeTheStepStays) {
  ASSERT_TRUE(store_->Draw(kEpoch, LearnerStep(6), 2, 1).ok());
  ASSERT_TRUE(store_->Restore(Epoch(2), "", {.step = LearnerStep(4)}).ok());
  EXPECT_THAT(Ids(), ElementsAre(100, 101, 102, 103));
  EXPECT_EQ(store_->Info().step, LearnerStep(4));
  EXPECT_EQ(store_->Info().retired, 0u);
  // The learner makes the step again: with the same ids, and another draw.
  const auto again = store_->Offer(Epoch(2), {TestEntry(104, 4, 4, 1)});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->results[0].outcome, Outcome::kInserted);
  EXPECT_TRUE(store_->Draw(Epoch(2), LearnerStep(6), 2, 1).ok());
}

TEST_F(ReplayRestoreTest, AStoreBehindTheLearnerKeepsEverything) {
  ASSERT_TRUE(store_->Restore(Epoch(2), "", {.step = LearnerStep(9)}).ok());
  EXPECT_THAT(Ids(), ElementsAre(100, 101, 102, 103, 104, 105));
  EXPECT_EQ(store_->Info().step, LearnerStep(9));
  EXPECT_THAT(Asides(), IsEmpty()) << "nothing left";
}

// Promise: A buffer belongs to one run.
TEST_F(ReplayRestoreTest, WhatLeavesIsCopiedAsideUntilTheNextCheckpoint) {
  ASSERT_TRUE(store_->Restore(Epoch(2), "").ok());
  EXPECT_THAT(Ids(), IsEmpty());
  ASSERT_THAT(Asides(), ::testing::SizeIs(1));
  store_.reset();
  store_ = ReplayStore::Open({.directory = directory_.path()}).value();  // Sweeps leftovers.
  EXPECT_THAT(Ids(), IsEmpty());
  ASSERT_THAT(Asides(), ::testing::SizeIs(1));
  // As docs/oncall.md says: the copy is a database like any other.
  store_.reset();
  fs::rename(Asides()[0], directory_.path() / "live-000077");
  std::ofstream(directory_.path() / "CURRENT") << "live-000077\n";
  store_ = ReplayStore::Open({.directory = directory_.path()}).value();
  EXPECT_THAT(Ids(), ElementsAre(100, 101, 102, 103, 104, 105));

  ASSERT_TRUE(store_->Restore(Epoch(3), "", {.step = LearnerStep(1)}).ok());
  EXPECT_THAT(Asides(), ::testing::SizeIs(1));
  ASSERT_TRUE(store_->Checkpoint(Epoch(3), "durable", 1).ok());
  EXPECT_THAT(Asides(), IsEmpty());
}

// A learner that starts over and over must not fill the disk, nor push out the first copy.
TEST_F(ReplayRestoreTest, CopiesAsideAreFewAndTheOldestStay) {
  ASSERT_TRUE(store_->Restore(Epoch(2), "").ok());
  const std::vector<fs::path> first = Asides();
  for (uint64_t start = 3; start < 12; ++start) {
    ASSERT_TRUE(store_->Offer(Epoch(start), {TestEntry(start, 1, 0, 1)}).ok());
    const bool full = Asides().size() == kAsidesMax;
    bool without_copy = false;
    ASSERT_TRUE(store_->Restore(Epoch(start), "", {.without_copy = &without_copy}).ok());
    EXPECT_EQ(without_copy, full) << start;
  }
  EXPECT_THAT(Asides(), ::testing::SizeIs(kAsidesMax));
  EXPECT_THAT(Asides(), ::testing::Contains(first[0]));
}

TEST(LinkOrCopyTest, CopiesWhereThereAreNoHardLinks) {
  const testing::ScopedDirectory directory;
  const fs::path from = directory.path() / "from";
  std::ofstream(from) << "content";
  const auto copied = [&](const fs::path& to) {
    std::ifstream in(to);
    std::string content;
    std::getline(in, content);
    return content;
  };
  const Link none = [](const fs::path&, const fs::path&, std::error_code& error) {
    error = std::make_error_code(std::errc::operation_not_supported);
  };
  ASSERT_TRUE(LinkOrCopy(from, directory.path() / "copy", none).ok());
  EXPECT_EQ(copied(directory.path() / "copy"), "content");
  EXPECT_EQ(fs::hard_link_count(from), 1u);
  ASSERT_TRUE(LinkOrCopy(from, directory.path() / "link").ok());
  EXPECT_EQ(fs::hard_link_count(from), 2u);
  const Link full = [](const fs::path&, const fs::path&, std::error_code& error) {
    error = std::make_error_code(std::errc::no_space_on_device);
  };
  EXPECT_TRUE(absl::IsResourceExhausted(LinkOrCopy(from, directory.path() / "no", full)));
  EXPECT_FALSE(fs::exists(directory.path() / "no"));
}

}  // namespace
}  // namespace oxbow::buffer
