// SPDX-License-Identifier: Apache-2.0
// The power goes at every change that a reshard makes to its new shards, and the file system keeps
// what it likes of what was not fsynced. A shard that is in its place is whole; where one is, all
// of them are, in their places or beside them; and all are in their places once Reshard says so.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "services/buffer/replay_store.h"
#include "services/buffer/reshard.h"
#include "tests/testing/power_loss_disk.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;
using testing::PowerLossDisk;
using Left = PowerLossDisk::Left;

constexpr size_t kShards = 3;
constexpr uint64_t kEntries = 9;
constexpr size_t kLargeLatent = 30'000;  // Three of them are in a segment.

std::unique_ptr<ReplayStore> OpenNew(const fs::path& path) {
  return ReplayStore::Open({.directory = path, .tables = {replay::BestTable(100)}}).value();
}

// All that a shard has, with the bytes of every part; an error if a part is not as it was offered.
std::string Content(const fs::path& path) {
  const auto store = ReplayStore::Open({.directory = path, .tables = {replay::BestTable(100)}});
  if (!store.ok()) return store.status().ToString();
  std::string content = absl::StrCat("step ", (*store)->Info().step.value);
  const absl::StatusOr<std::vector<Entry>> entries = (*store)->List(100, EntryId(0));
  if (!entries.ok()) return entries.status().ToString();
  for (const Entry& entry : *entries) {
    const auto latents = (*store)->ReadLatents(entry.id, 0, entry.latent_count);
    const std::string wanted = TestEntry(entry.id.value, 0, 0, 0, entry.latent_bytes).latents;
    const bool whole = latents.ok() && *latents == wanted;
    absl::StrAppend(&content, ", ", entry.id.value, whole ? "" : " is damaged");
  }
  return content;
}

class ReshardPowerLossTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ConfigureLog(LogLevel::kError, LogFormat::kText, "");
    const auto store = OpenNew(directory_.path() / "from");
    for (uint64_t id = 1; id <= kEntries; ++id) {
      const Entry entry = TestEntry(id, id, 0, 1, id % 2 == 0 ? kLargeLatent : 40);
      ASSERT_TRUE(store->Offer(Epoch(1), {entry}).ok());
    }
    ASSERT_TRUE(store->Advance(Epoch(1), LearnerStep(0), {}, {}).ok());
    for (size_t i = 0; i < kShards; ++i) {
      names_.push_back(absl::StrCat("shard-", i));
      std::string& wanted = wanted_[names_.back()] = "step 1";
      for (uint64_t id = 1; id <= kEntries; ++id) {
        if (id % kShards == i) absl::StrAppend(&wanted, ", ", id);
      }
    }
  }

  std::vector<fs::path> Below(const fs::path& root) const {
    std::vector<fs::path> paths;
    for (const std::string& name : names_) paths.push_back(root / name);
    return paths;
  }

  // Faults of `image`, which the power loss left.
  std::string Faults(const fs::path& image, bool ended) const {
    std::string faults;
    bool any = ended;
    for (const fs::path& path : Below(image)) any |= fs::exists(path);
    if (!any) return faults;
    for (const fs::path& path : Below(image)) {
      const bool beside = !ended && !fs::exists(path);
      const std::string found = Content(beside ? path.string() + ".unfinished" : path.string());
      if (found == wanted_.at(path.filename())) continue;
      absl::StrAppend(&faults, "; ", beside ? "beside its place " : "", path.filename().string(),
                      " has ", found);
    }
    return faults;
  }

  const oxbow::testing::ScopedDirectory directory_{oxbow::testing::ScopedDirectory::Memory()};
  std::vector<std::string> names_;
  std::map<std::string, std::string> wanted_;  // The content of each shard in the end.
};

// Promise: Another number of shards loses nothing.
TEST_F(ReshardPowerLossTest, AShardInItsPlaceIsWholeAndSoAreAllOthers) {
  const std::vector<fs::path> from = {directory_.path() / "from"};
  const fs::path root = directory_.path() / "disk";
  fs::create_directory(root);
  PowerLossDisk disk(root);
  const fs::path image = directory_.path() / "image";
  size_t losses = 0;
  bool ended = false;
  std::map<std::string, std::string> seen;  // The first loss that leaves each fault.
  const auto lose = [&](Left left, uint64_t seed) {
    disk.CopyTo(image, left, seed);
    const std::string faults = Faults(image, ended);
    const std::string loss = absl::StrCat("loss ", losses++, ended ? " after the end" : "",
                                          ", left ", static_cast<int>(left), ", seed ", seed);
    if (!faults.empty()) seen.try_emplace(faults, loss);
  };
  const auto lose_in_every_way = [&] {
    for (const Left left : {Left::kNothing, Left::kNames, Left::kNamesAndHalf, Left::kNamesAndZeros,
                            Left::kBytes, Left::kAll}) {
      lose(left, 0);
    }
    for (uint64_t i = 0; i < 4; ++i) lose(Left::kAnything, losses + 1);
  };
  disk.OnChange([&] {
    // A name that was never there is not left.
    for (const fs::path& path : Below(root)) {
      if (fs::exists(path)) return lose_in_every_way();
    }
  });
  const auto report = Reshard(from, Below(root));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->entries, kEntries);
  disk.OnChange(nullptr);
  ended = true;
  lose_in_every_way();
  EXPECT_GT(losses, 50u);
  for (const auto& [faults, loss] : seen) ADD_FAILURE() << loss << faults;
}

}  // namespace
}  // namespace oxbow::buffer
