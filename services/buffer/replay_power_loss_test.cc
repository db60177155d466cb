// SPDX-License-Identifier: Apache-2.0
// The power goes after every single fsync of a history of calls, and a bit turns in every byte of
// the log's last record: a store opens with what was acknowledged, or says that it is damaged.
#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "services/buffer/replay_store.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;

constexpr Epoch kEpoch(1);

// The visible content of a store: ids with their uses, and the clock.
std::string Seen(ReplayStore& store) {
  std::string seen = std::to_string(store.Info().step.value) + ":";
  const std::vector<Entry> entries = store.List(1000, EntryId(0)).value();
  for (const Entry& entry : entries) {
    seen += " " + std::to_string(entry.id.value) + "x" + std::to_string(entry.uses);
  }
  return seen;
}

void ExpectWhole(ReplayStore& store) {
  std::string cursor;
  do {
    const VerifiedPage page = store.Verify(cursor, 100).value();
    for (const VerifiedRecord& record : page.entries) {
      const std::string parts = store.ReadLatents(record.entry, 0, 3).value();
      EXPECT_EQ(parts, TestEntry(record.entry.value, 0, 0, 0, parts.size() / 3).latents);
    }
    cursor = page.next;
  } while (!cursor.empty());
}

std::vector<Entry> Batch(uint64_t step) {
  std::vector<Entry> entries;
  for (uint64_t i = 0; i < 3; ++i) {
    entries.push_back(TestEntry(10 * step + i + 1, (step + i) % 5, step, static_cast<double>(step),
                                i == 0 ? 3000 : 40));
  }
  return entries;
}

// Calls that change the store. Restore comes twice, with and without a checkpoint.
std::vector<std::function<absl::Status(ReplayStore&)>> History() {
  std::vector<std::function<absl::Status(ReplayStore&)>> calls;
  for (uint64_t step = 0; step < 12; ++step) {
    calls.push_back([=](ReplayStore& store) { return store.Offer(kEpoch, Batch(step)).status(); });
    calls.push_back(
        [=](ReplayStore& store) { return store.Draw(kEpoch, LearnerStep(step), 2, 1).status(); });
    calls.push_back([=](ReplayStore& store) {
      return store.Advance(kEpoch, LearnerStep(step), std::vector{EntryId(10 * step + 1)}, {})
          .status();
    });
    if (step % 4 == 2) {
      calls.push_back([](ReplayStore& store) { return store.Checkpoint(kEpoch, "c", 1); });
    }
    if (step == 7) calls.push_back([](ReplayStore& store) { return store.Restore(kEpoch, "c"); });
    if (step == 7) {
      calls.push_back(
          [](ReplayStore& store) { return store.Restore(kEpoch, "", {.step = LearnerStep(5)}); });
    }
  }
  return calls;
}

// With large entries in segments that are soon full, or in the database; or with small ones in
// either, as their batch has much already or not.
class PowerLossAfterFsyncTest : public ::testing::TestWithParam<SegmentSizes> {};

INSTANTIATE_TEST_SUITE_P(
    Sizes, PowerLossAfterFsyncTest,
    ::testing::Values(SegmentSizes{}, SegmentSizes{.entry_min = 1000, .file = 20'000},
                      SegmentSizes{.small_min = 200, .batch_min = 1200, .file = 3000}),
    [](const auto& info) {
      if (info.param.batch_min < 5000) return "Both";
      return info.param.entry_min < 5000 ? "Segments" : "Database";
    });

// Promise: An acknowledged offer stays.
TEST_P(PowerLossAfterFsyncTest, TheStoreHoldsAllAcknowledgedCalls) {
  const testing::ScopedDirectory directory{testing::ScopedDirectory::Memory()};
  const auto disk = std::make_shared<FaultyFileSystem>();
  const std::unique_ptr<rocksdb::Env> environment = rocksdb::NewCompositeEnv(disk);
  const fs::path path = directory.path() / "store";
  auto store = ReplayStore::Open(
                   {.directory = path, .environment = environment.get(), .segments = GetParam()})
                   .value();

  struct Image {
    fs::path path;
    size_t acknowledged = 0;  // Calls before the power went.
    size_t begun = 0;
  };
  std::vector<Image> images;
  std::vector<std::string> seen = {Seen(*store)};
  std::atomic<size_t> acknowledged = 0;
  const std::thread::id caller = std::this_thread::get_id();
  // RocksDB's own threads go on beside a copy; those of the calling thread stand still.
  disk->OnSync([&] {
    if (std::this_thread::get_id() != caller) return;
    Image image{.path = directory.path() / ("image" + std::to_string(images.size())),
                .acknowledged = acknowledged,
                .begun = acknowledged + 1};
    disk->CopySynced(path, image.path);
    images.push_back(image);
  });
  for (const auto& call : History()) {
    const absl::Status status = call(*store);
    ASSERT_TRUE(status.ok()) << status;
    seen.push_back(Seen(*store));
    ++acknowledged;
  }
  disk->OnSync(nullptr);
  EXPECT_GT(images.size(), 30u);
  for (const Image& image : images) {
    auto opened = ReplayStore::Open({.directory = image.path});
    ASSERT_TRUE(opened.ok()) << image.path << opened.status();
    const std::string found = Seen(**opened);
    ExpectWhole(**opened);
    EXPECT_TRUE(found == seen[image.acknowledged] || found == seen[image.begun])
        << image.path << " after call " << image.acknowledged << ": " << found << "\nnot "
        << seen[image.acknowledged] << "\nnor " << seen[image.begun];
  }
}

// Many callers, who do not wait: each image is the content after some of the offers, in order, and
// after all that were acknowledged.
// Promise: An acknowledged offer stays.
TEST_P(PowerLossAfterFsyncTest, OffersThatShareAnFsyncAreThereInOrder) {
  constexpr uint64_t kOffers = 150;
  const auto offer_of = [](uint64_t i) {
    std::vector<Entry> entries;
    for (uint64_t j = 0; j <= i % 3; ++j) {
      const uint64_t id = 10 * i + j + 1;
      entries.push_back(TestEntry(id, Mix64(id) % 12, 0, static_cast<double>(Mix64(id) % 1000),
                                  j == 1 ? 3000 : 40));
    }
    return entries;
  };
  const testing::ScopedDirectory directory{testing::ScopedDirectory::Memory()};
  std::vector<std::string> seen;  // After so many offers, one by one.
  {
    const auto plain = ReplayStore::Open({.directory = directory.path() / "plain"}).value();
    seen.push_back(Seen(*plain));
    for (uint64_t i = 0; i < kOffers; ++i) {
      ASSERT_TRUE(plain->Offer(kEpoch, offer_of(i)).ok());
      seen.push_back(Seen(*plain));
    }
  }
  const auto disk = std::make_shared<FaultyFileSystem>();
  const std::unique_ptr<rocksdb::Env> environment = rocksdb::NewCompositeEnv(disk);
  const fs::path path = directory.path() / "store";
  auto store = ReplayStore::Open(
                   {.directory = path, .environment = environment.get(), .segments = GetParam()})
                   .value();
  struct Image {
    fs::path path;
    size_t acknowledged = 0;
    size_t begun = 0;
  };
  std::atomic<size_t> acknowledged = 0;
  std::atomic<size_t> begun = 0;
  std::atomic<uint64_t> most_together = 0;
  absl::Mutex mutex;
  std::vector<Image> images;
  disk->OnSync([&] {
    absl::MutexLock lock(&mutex);
    Image image{.path = directory.path() / ("image" + std::to_string(images.size())),
                .acknowledged = acknowledged};
    disk->CopySynced(path, image.path);
    image.begun = begun;
    images.push_back(image);
  });
  for (uint64_t i = 0; i < kOffers; ++i) {
    ++begun;
    store->OfferAsync(kEpoch, offer_of(i), [&, i](const absl::StatusOr<OfferReport>& report) {
      EXPECT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(acknowledged.fetch_add(1), i) << "in order";
      if (report.ok()) most_together = std::max<uint64_t>(most_together, report->together);
    });
  }
  store.reset();
  EXPECT_EQ(acknowledged, kOffers);
  EXPECT_GT(most_together, 1u) << "no two offers shared an fsync";
  for (const Image& image : images) {
    auto opened = ReplayStore::Open({.directory = image.path});
    ASSERT_TRUE(opened.ok()) << image.path << opened.status();
    ExpectWhole(**opened);
    const std::string found = Seen(**opened);
    bool fits = false;
    for (size_t k = image.acknowledged; k <= image.begun; ++k) fits |= found == seen[k];
    EXPECT_TRUE(fits) << image.path << " is none of the contents after " << image.acknowledged
                      << " to " << image.begun << " offers: " << found;
  }
}

fs::path LogOf(const fs::path& store) {
  fs::path last;
  for (const auto& file : fs::directory_iterator(store / "live-000001")) {
    if (file.path().extension() == ".log" && file.path() > last) last = file.path();
  }
  return last;
}

// A record cut off by a power loss was not acknowledged. One that was synced and rotted must not
// pass for it.
// Promise: An acknowledged offer stays.
TEST(ReplayPowerLossTest, ARottenRecordAtTheEndOfTheLogIsNotTakenForACutOne) {
  const testing::ScopedDirectory directory{testing::ScopedDirectory::Memory()};
  const fs::path path = directory.path() / "store";
  uintmax_t before = 0;
  {
    const auto store = ReplayStore::Open({.directory = path}).value();
    ASSERT_TRUE(store->Offer(kEpoch, {TestEntry(1, 1, 0, 1)}).ok());
    before = fs::file_size(LogOf(path));
    ASSERT_TRUE(store->Offer(kEpoch, {TestEntry(2, 2, 0, 1)}).ok());
    fs::copy(path, directory.path() / "copy", fs::copy_options::recursive);
  }
  const uintmax_t after = fs::file_size(LogOf(directory.path() / "copy"));
  ASSERT_GT(after, before);
  const auto opened_with = [&](const std::function<void(const fs::path&)>& damage) {
    const fs::path image = directory.path() / "image";
    fs::remove_all(image);
    fs::copy(directory.path() / "copy", image, fs::copy_options::recursive);
    damage(LogOf(image));
    auto store = ReplayStore::Open({.directory = image});
    return store.ok() ? static_cast<int>((*store)->Info().entries)
                      : -static_cast<int>(store.status().code());
  };
  for (const uintmax_t size : {before + 3, before + 20, after - 1}) {
    EXPECT_EQ(opened_with([=](const fs::path& log) { fs::resize_file(log, size); }), 1)
        << "cut off at " << size;
  }
  std::string silent;
  // Every byte of the headers, then samples: each costs a store.
  for (uintmax_t at = before; at < after; at += at < before + 24 ? 1 : 16) {
    const int result = opened_with([=](const fs::path& log) {
      std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const char byte = static_cast<char>(file.get());
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(byte ^ 0x10));
    });
    if (result != -static_cast<int>(absl::StatusCode::kDataLoss) && result != 2) {
      silent += " " + std::to_string(at - before) + "=" + std::to_string(result);
    }
  }
  EXPECT_EQ(silent, "") << "of " << after - before;
}

}  // namespace
}  // namespace oxbow::buffer
