// A bad byte on the disk costs the entry it is in, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "services/buffer/replay_store.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Epoch kEpoch(1);
constexpr size_t kPartBytes = 4000;  // In blob files.

// Turns a byte of `bytes` where a blob file of the live database holds them.
void TurnByteOf(const fs::path& store, const std::string& bytes) {
  int turned = 0;
  for (const auto& file : fs::recursive_directory_iterator(store)) {
    if (file.path().extension() != ".blob") continue;
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

class ReplayDamageTest : public ::testing::Test {
 protected:
  ReplayDamageTest() {
    for (uint64_t id = 1; id <= 5; ++id) EXPECT_TRUE(Offer(id).ok());
    EXPECT_TRUE(store_->Checkpoint(kEpoch, "flushed", 1).ok());
  }

  static Entry EntryOf(uint64_t id) {
    Entry entry = TestEntry(id, id, 0, 1, kPartBytes);
    entry.conditioning = TestBytes(entry.id, 101, kPartBytes);
    return entry;
  }
  absl::Status Offer(uint64_t id) { return store_->Offer(kEpoch, {EntryOf(id)}).status(); }
  std::vector<uint64_t> Draw() {
    std::vector<uint64_t> ids;
    const auto drawn = store_->Draw(kEpoch, LearnerStep(1), 5, 1);
    EXPECT_TRUE(drawn.ok()) << drawn.status();
    if (!drawn.ok()) return ids;
    for (const Entry& entry : drawn->entries) ids.push_back(entry.id.value);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  const testing::ScopedDirectory directory_{testing::ScopedDirectory::Memory()};
  const std::unique_ptr<ReplayStore> store_ =
      ReplayStore::Open({.directory = directory_.path()}).value();
};

TEST_F(ReplayDamageTest, ADrawIsWithoutADamagedEntryWhichLeaves) {
  TurnByteOf(directory_.path(), EntryOf(3).conditioning);
  EXPECT_THAT(Draw(), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(Draw(), ElementsAre(1, 2, 4, 5)) << "the same step again";
  EXPECT_EQ(store_->Info().entries, 4u);
  EXPECT_EQ(store_->Info().damaged, 1u);
  ASSERT_TRUE(store_->Advance(kEpoch, LearnerStep(1), {}, {}).ok());
  EXPECT_EQ(store_->Info().retired, 0u);
  Entry better = EntryOf(6);
  better.prompt = PromptId(3);
  EXPECT_EQ(store_->Offer(kEpoch, {better})->results[0].outcome, Outcome::kInserted)
      << "its prompt has room again";
}

TEST_F(ReplayDamageTest, AReaderIsToldOfTheDamageOnceAndThenThatItIsGone) {
  TurnByteOf(directory_.path(), EntryOf(2).latents.substr(kPartBytes, kPartBytes));
  EXPECT_TRUE(store_->ReadLatents(EntryId(2), 0, 1).ok()) << "another latent";
  EXPECT_TRUE(absl::IsDataLoss(store_->ReadLatents(EntryId(2), 1, 1).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->ReadLatents(EntryId(2), 1, 1).status()));
  EXPECT_THAT(Draw(), ElementsAre(1, 3, 4, 5));
}

// Compaction moves old values to new files, so it reads them, and RocksDB writes no more after one
// that it cannot read.
TEST_F(ReplayDamageTest, CompactionThatMeetsADamagedEntryDoesNotStopWrites) {
  TurnByteOf(directory_.path(), EntryOf(3).conditioning);
  int refused = 0;
  uint64_t id = 6;
  for (; id < 300 && store_->Info().damaged == 0; ++id) {
    absl::Status status = Offer(id);
    if (status.ok()) status = store_->Checkpoint(kEpoch, "flushed", 1);
    refused += status.ok() ? 0 : 1;
  }
  EXPECT_EQ(store_->Info().damaged, 1u) << refused << " calls refused";
  EXPECT_LE(refused, 3);
  for (const uint64_t end = id + 30; id < end; ++id) {
    ASSERT_TRUE(Offer(id).ok());
    const absl::Status kept = store_->Checkpoint(kEpoch, "flushed", 1);
    ASSERT_TRUE(kept.ok()) << kept;
  }
  for (const uint64_t sound : {1, 2, 4, 5}) {
    EXPECT_EQ(store_->Find(EntryId(sound))->conditioning, EntryOf(sound).conditioning);
  }
  EXPECT_TRUE(absl::IsNotFound(store_->Find(EntryId(3)).status()));
}

}  // namespace
}  // namespace oxbow::buffer
