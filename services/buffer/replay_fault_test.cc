// SPDX-License-Identifier: Apache-2.0
// A full disk loses nothing and leaves nothing half-written; a power loss keeps what was
// acknowledged.
#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <chrono>
#include <fstream>
#include <future>

#include "absl/synchronization/notification.h"
#include "services/buffer/replay_store.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

constexpr Epoch kEpoch(1);
constexpr size_t kLatentBytes = 20'000;

// With the entries in segments, or not.
class ReplayFaultTest : public ::testing::TestWithParam<bool> {
 protected:
  ReplayStore::Options Options(const std::filesystem::path& directory) {
    ReplayStore::Options options;
    options.directory = directory;
    options.tables = {replay::BestTable(6)};
    options.environment = environment_.get();
    if (GetParam()) options.segments = {.entry_min = 10'000, .file = 100'000};
    return options;
  }

  std::vector<Entry> Batch(uint64_t first, uint64_t count) {
    std::vector<Entry> entries;
    for (uint64_t id = first; id < first + count; ++id) {
      entries.push_back(TestEntry(id, id % 5, 0, static_cast<double>(id), kLatentBytes));
    }
    return entries;
  }

  void ExpectWhole(ReplayStore& store, uint64_t first, uint64_t count) {
    for (uint64_t id = first; id < first + count; ++id) {
      const auto latents = store.ReadLatents(EntryId(id), 0, 3);
      ASSERT_TRUE(latents.ok()) << latents.status();
      ASSERT_EQ(*latents, TestEntry(id, 0, 0, 0, kLatentBytes).latents);
    }
    ASSERT_EQ(store.Info().entries, count);
  }

  const oxbow::testing::ScopedDirectory directory_{oxbow::testing::ScopedDirectory::Memory()};
  const std::shared_ptr<FaultyFileSystem> disk_ = std::make_shared<FaultyFileSystem>();
  const std::unique_ptr<rocksdb::Env> environment_ = rocksdb::NewCompositeEnv(disk_);
};

INSTANTIATE_TEST_SUITE_P(InSegments, ReplayFaultTest, ::testing::Bool());

// Metrics and Info are what an on-call engineer has left then.
// Promise: A slow buffer costs a bounded share of the time.
TEST_P(ReplayFaultTest, InfoDoesNotWaitForADiskThatHangs) {
  auto store = ReplayStore::Open(Options(directory_.path())).value();
  ASSERT_TRUE(store->Offer(kEpoch, Batch(10, 5)).ok());
  absl::Notification hangs, goes_on;
  disk_->OnSync([&] {
    if (!hangs.HasBeenNotified()) hangs.Notify();
    goes_on.WaitForNotification();
  });
  auto advance = std::async(
      std::launch::async, [&] { return store->Advance(kEpoch, LearnerStep(0), {}, {}).status(); });
  hangs.WaitForNotification();
  auto info = std::async(std::launch::async, [&] { return store->Info(); });
  EXPECT_EQ(info.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  goes_on.Notify();
  EXPECT_EQ(info.get().entries, 5u);
  EXPECT_TRUE(advance.get().ok());
  disk_->OnSync(nullptr);
  EXPECT_EQ(store->Info().step, LearnerStep(1));
}

// Fills the disk after the n-th write for n = 0, 1, ... until `call` gets by; each time the old
// content must be whole, and the same call must work once there is room.
// Promise: An acknowledged offer stays.
TEST_P(ReplayFaultTest, OfferOnAFullDiskIsAllOrNothing) {
  int failures = 0;
  for (uint64_t appends = 0;; ++appends) {
    const auto path = directory_.path() / std::to_string(appends);
    auto store = ReplayStore::Open(Options(path)).value();
    ASSERT_TRUE(store->Offer(kEpoch, Batch(10, 5)).ok());
    disk_->FillAfter(appends);
    const auto report = store->Offer(kEpoch, Batch(20, 5));
    if (report.ok()) {
      disk_->Empty();
      break;
    }
    ++failures;
    ASSERT_EQ(report.status().code(), absl::StatusCode::kResourceExhausted) << report.status();
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(*store, 10, 5));
    ASSERT_EQ(store->Offer(kEpoch, Batch(20, 5)).status().code(),
              absl::StatusCode::kResourceExhausted);
    disk_->Empty();
    const auto again = store->Offer(kEpoch, Batch(20, 5));
    ASSERT_TRUE(again.ok()) << "after " << appends << ": " << again.status();
    for (const OfferResult& result : again->results) {
      ASSERT_EQ(result.outcome, Outcome::kReplaced);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(*store, 20, 5));
    store.reset();
    store = ReplayStore::Open(Options(path)).value();
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(*store, 20, 5));
  }
  EXPECT_GT(failures, 0);
}

// Promise: An acknowledged offer stays.
TEST_P(ReplayFaultTest, CheckpointAndRestoreOnAFullDiskLeaveTheContent) {
  for (uint64_t appends = 0;; appends += 2) {
    const auto path = directory_.path() / std::to_string(appends);
    auto store = ReplayStore::Open(Options(path)).value();
    ASSERT_TRUE(store->Offer(kEpoch, Batch(10, 5)).ok());
    ASSERT_TRUE(store->Checkpoint(kEpoch, "old", 5).ok());
    ASSERT_TRUE(store->Offer(kEpoch, Batch(20, 5)).ok());
    disk_->FillAfter(appends);
    const absl::Status checkpoint = store->Checkpoint(kEpoch, "new", 5);
    const absl::Status restore = store->Restore(kEpoch, "old");
    disk_->Empty();
    SCOPED_TRACE(::testing::Message() << appends << " writes, " << checkpoint << ", " << restore);
    if (!disk_->was_full()) break;
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(*store, restore.ok() ? 10 : 20, 5));
    ASSERT_TRUE(store->Restore(kEpoch, "old").ok());
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(*store, 10, 5));
    const absl::Status kept = store->Restore(kEpoch, "new");
    ASSERT_EQ(kept.ok(), checkpoint.ok()) << kept;
    store.reset();
    store = ReplayStore::Open(Options(path)).value();
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(*store, checkpoint.ok() ? 20 : 10, 5));
  }
}

// The power goes right after each call: what a later call syncs must not hide what this one did
// not.
// Promise: An acknowledged offer stays.
TEST_P(ReplayFaultTest, PowerLossKeepsEveryAcknowledgedCall) {
  const auto path = directory_.path() / "store";
  const auto store = ReplayStore::Open(Options(path)).value();
  auto after_power_loss = [&, image = 0]() mutable {
    const auto copy = directory_.path() / ("image" + std::to_string(++image));
    disk_->CopySynced(path, copy);
    return ReplayStore::Open(Options(copy)).value();
  };
  for (uint64_t round = 1; round <= 8; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    ASSERT_TRUE(store->Offer(kEpoch, Batch(10 * round, 5)).ok());
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(*after_power_loss(), 10 * round, 5));
    const auto drawn = store->Draw(kEpoch, LearnerStep(round), 2, 1);
    ASSERT_TRUE(drawn.ok()) << drawn.status();
    // Another count: the step was drawn before, so it plays no part.
    const auto again = after_power_loss()->Draw(kEpoch, LearnerStep(round), 5, 1);
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(again->entries.size(), 2u);
    ASSERT_EQ(again->entries[0].id, drawn->entries[0].id);
    if (round % 2 == 0) {
      ASSERT_TRUE(store->Checkpoint(kEpoch, "c", 1).ok());
      ASSERT_TRUE(store->Offer(kEpoch, Batch(1000 + 10 * round, 5)).ok());
      ASSERT_TRUE(store->Restore(kEpoch, "c").ok());
      ASSERT_NO_FATAL_FAILURE(ExpectWhole(*after_power_loss(), 10 * round, 5));
    }
    ASSERT_TRUE(store->Advance(kEpoch, LearnerStep(round), {}, {}).ok());
    ASSERT_EQ(after_power_loss()->Info().step, LearnerStep(round + 1));
  }
}

TEST_P(ReplayFaultTest, LeftoversOfACrashInRestoreAreSweptAway) {
  const auto path = directory_.path() / "store";
  ReplayStore::Open(Options(path)).value()->Offer(kEpoch, Batch(10, 5)).IgnoreError();
  std::filesystem::create_directories(path / "live-000002");
  std::ofstream(path / "live-000002" / "CURRENT") << "half of a database";
  std::filesystem::create_directories(path / "checkpoints" / "a.000001.tmp");
  const auto store = ReplayStore::Open(Options(path)).value();
  ExpectWhole(*store, 10, 5);
  EXPECT_FALSE(std::filesystem::exists(path / "live-000002"));
  EXPECT_FALSE(std::filesystem::exists(path / "checkpoints" / "a.000001.tmp"));
}

}  // namespace
}  // namespace oxbow::buffer
