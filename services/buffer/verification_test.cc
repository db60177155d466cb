// SPDX-License-Identifier: Apache-2.0
// Every kind of damage is found and named, and a whole store has no findings.
#include "services/buffer/verification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/write_batch.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>

#include "run/prompt.h"
#include "services/buffer/database.h"
#include "services/buffer/entry_conversion.h"
#include "services/buffer/replay_directory.h"
#include "services/buffer/replay_store.h"
#include "services/buffer/segments.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;
using oxbow::testing::ScopedDirectory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kLatents = 3;
constexpr uint64_t kNumbers =
    512;  // Values of a latent: 2 KiB, so that it is stored in a blob file.

// Sound in every respect.
v1::ReplayEntry HeaderOf(uint64_t id, double reward) {
  v1::ReplayEntry header;
  header.set_entry_id(id);
  *header.mutable_prompt() = run::MakePrompt("text " + std::to_string(id), "{}");
  header.set_raw_reward(reward);
  for (const double sigma : {1.0, 0.5, 0.0}) header.add_sigmas(sigma);
  v1::Trajectory& trajectory = *header.mutable_trajectory();
  for (int step = 0; step < 2; ++step) {
    trajectory.add_log_prob(-1.5f);
    trajectory.add_sde(true);
    trajectory.add_behaviour_version(7);
  }
  trajectory.set_reward(reward);
  trajectory.mutable_latents()->set_dtype(v1::DTYPE_F32);
  for (const int64_t size : {int64_t{kLatents}, int64_t{2}, int64_t{4}, int64_t{8}, int64_t{8}}) {
    trajectory.mutable_latents()->add_shape(size);  // A video's: [n, C, F, H, W].
  }
  header.mutable_conditioning()->mutable_tokens()->set_dtype(v1::DTYPE_U8);
  header.mutable_conditioning()->mutable_tokens()->add_shape(2);
  header.mutable_conditioning()->mutable_tokens()->set_data("ab");
  return header;
}

Entry EntryOf(const v1::ReplayEntry& header, float number = 0.25f) {
  Entry entry = EntryFromProto(header).value();
  const std::vector<float> numbers(kLatents * kNumbers, number);
  entry.latents.assign(reinterpret_cast<const char*>(numbers.data()),
                       numbers.size() * sizeof(float));
  return entry;
}

std::unique_ptr<ReplayStore> OpenStore(const fs::path& path) {
  return ReplayStore::Open({.directory = path}).value();
}

void Offer(ReplayStore& store, const std::vector<Entry>& entries) {
  const auto report = store.Offer(Epoch(1), entries);
  ASSERT_TRUE(report.ok()) << report.status();
  for (const OfferResult& result : report->results) {
    ASSERT_EQ(result.outcome, Outcome::kInserted) << result.error;
  }
}

// All problems, "ENTRY: PROBLEM", read in pages of `limit`.
std::vector<std::string> Problems(const Database& database, uint64_t limit = 2) {
  std::vector<std::string> problems;
  std::string cursor;
  do {
    const VerifiedPage page = VerifyEntries(database, cursor, limit).value();
    EXPECT_LE(page.entries.size(), limit);
    for (const VerifiedRecord& record : page.entries) {
      for (const std::string& problem : record.problems) {
        problems.push_back(std::to_string(record.entry.value) + ": " + problem);
      }
    }
    cursor = page.next;
  } while (!cursor.empty());
  return problems;
}

// A store of entries 1 to 5 that no process serves.
class VerificationTest : public ::testing::Test {
 protected:
  VerificationTest() {
    const auto store = OpenStore(directory_.path());
    for (uint64_t id = 1; id <= 5; ++id) Offer(*store, {EntryOf(HeaderOf(id, 0.5))});
  }

  fs::path live() const { return directory_.path() / "live-000001"; }

  // Writes past the store's back, as a broken program would.
  void Put(const std::function<void(const Database&, rocksdb::WriteBatch&)>& change) {
    const auto database = Database::Open(live(), /*create=*/false, nullptr).value();
    rocksdb::WriteBatch batch;
    change(*database, batch);
    ASSERT_TRUE(database->Write(batch, /*sync=*/true).ok());
  }

  std::vector<std::string> Found() { return Problems(*Database::OpenReadOnly(live()).value()); }

  const ScopedDirectory directory_;
};

TEST_F(VerificationTest, SoundStoreHasNoFindingsAndPagesHoldEachEntryOnce) {
  EXPECT_THAT(Found(), IsEmpty());
  const auto database = Database::OpenReadOnly(live()).value();
  for (const uint64_t limit : {1, 2, 5, 100}) {
    std::vector<uint64_t> seen;
    std::string cursor;
    do {
      const VerifiedPage page = VerifyEntries(*database, cursor, limit).value();
      for (const VerifiedRecord& record : page.entries) seen.push_back(record.entry.value);
      cursor = page.next;
    } while (!cursor.empty());
    EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4, 5)) << limit;
  }
  EXPECT_EQ(VerifyEntries(*database, "x", 1).status().code(), absl::StatusCode::kInvalidArgument);
}

// Promise: Verification names the damage. `oxbow replay verify` names each damaged entry and no
// other, live and from the directory. Damaged means that a part is missing, short, undecodable,
// contradicts its record, is not finite or fails its checksum.
TEST_F(VerificationTest, MissingAndShortPartsAreNamed) {
  Put([](const Database& database, rocksdb::WriteBatch& batch) {
    batch.Delete(database.payload(), PartKey(EntryId(1), 1));
    batch.Put(database.payload(), PartKey(EntryId(2), 2), "short");
    batch.Delete(database.payload(), PartKey(EntryId(3), kConditioningPart));
    batch.Delete(database.index(), HeaderKey(EntryId(4)));
    batch.Put(database.index(), RecordKey({.id = EntryId(5)}), "no record");
  });
  const std::string missing = "replay store is damaged: a part of entry ";
  EXPECT_THAT(Found(), ElementsAre("1: latent 1: " + missing + "1 is missing",
                                   "2: latent 2 has 5 bytes, not 2048",
                                   "3: conditioning: " + missing + "3 is missing",
                                   "4: header: " + missing + "4 is missing",
                                   "5: record is damaged or of another version"));
}

// An entry's table is in its key, not only in a value that may be damaged.
// Promise: Verification names the damage.
TEST_F(VerificationTest, ARecordThatDoesNotDecodeIsOfItsOwnTable) {
  Put([](const Database& database, rocksdb::WriteBatch& batch) {
    batch.Put(database.index(), RecordKey({.id = EntryId(5)}), "no record");
    const Entry queued{.id = EntryId(7), .table = "recent_groups", .place = 1};
    batch.Put(database.index(), RecordKey(queued), Encode(queued).substr(0, 20));
    const Entry lost{.id = EntryId(8), .table = "recent_groups", .place = 2};
    batch.Put(database.index(), RecordKey(lost), "\xff");
  });
  std::map<uint64_t, std::string> tables;
  const auto database = Database::OpenReadOnly(live()).value();
  for (const VerifiedRecord& record : VerifyEntries(*database, "", 100)->entries) {
    if (!record.problems.empty()) tables[record.entry.value] = record.table;
  }
  EXPECT_THAT(tables, ElementsAre(std::pair(5, "best"), std::pair(7, "recent_groups"),
                                  std::pair(8, "a queue")));
}

// Promise: Verification names the damage.
TEST_F(VerificationTest, HeadersThatContradictTheirRecordAreNamed) {
  Put([](const Database& database, rocksdb::WriteBatch& batch) {
    const auto put = [&](uint64_t id, v1::ReplayEntry header) {
      const Entry entry = EntryOf(header);
      const Entry record{.id = EntryId(id),
                         .prompt = entry.prompt,
                         .reward = 0.5,
                         .latent_count = kLatents,
                         .latent_bytes = kNumbers * sizeof(float),
                         .header_bytes = entry.header.size(),
                         .conditioning_bytes = entry.conditioning.size()};
      batch.Put(database.index(), RecordKey(record), Encode(record));
      batch.Put(database.index(), HeaderKey(EntryId(id)), entry.header);
    };
    put(1, HeaderOf(2, 0.5));
    put(2, HeaderOf(2, 0.75));
    v1::ReplayEntry other_text = HeaderOf(3, 0.5);
    other_text.mutable_prompt()->set_text("another text");
    put(3, other_text);
    v1::ReplayEntry infinite = HeaderOf(4, 0.5);
    infinite.mutable_trajectory()->set_log_prob(0, std::numeric_limits<float>::infinity());
    put(4, infinite);
    v1::ReplayEntry smaller = HeaderOf(5, 0.5);
    smaller.mutable_trajectory()->mutable_latents()->set_shape(2, 2);  // Frames.
    put(5, smaller);
  });
  EXPECT_THAT(Found(), ElementsAre("1: header is of another entry", "2: header has another reward",
                                   "3: prompt id is not that of its text",
                                   "4: log-probs or rewards are not finite",
                                   "5: latents declare 3072 bytes, stored are 6144"));
}

// Promise: Verification names the damage.
TEST_F(VerificationTest, NumbersThatAreNotFiniteAreNamed) {
  {
    const auto store = OpenStore(directory_.path());
    Offer(*store, {EntryOf(HeaderOf(6, 0.5), std::numeric_limits<float>::quiet_NaN())});
  }
  EXPECT_THAT(Found(), ElementsAre("6: latent 0 is not finite", "6: latent 1 is not finite",
                                   "6: latent 2 is not finite"));
}

// In files of RocksDB, and in segments.
class TurnedByteTest : public VerificationTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(InSegments, TurnedByteTest, ::testing::Bool());

// The same bytes as any bad disk would turn.
// Promise: Verification names the damage.
TEST_P(TurnedByteTest, OnTheDiskNamesItsEntryAlone) {
  constexpr uint64_t kNever = uint64_t{1} << 40;
  const ReplayStore::Options options{.directory = directory_.path(),
                                     .segments = {.entry_min = GetParam() ? 1000 : kNever}};
  ReplayStore::Open(options).value();  // Its start writes the log's content into files.
  {
    const auto store = ReplayStore::Open(options).value();
    Offer(*store, {EntryOf(HeaderOf(6, 0.5), 123456.0f)});
    ASSERT_TRUE(store->Checkpoint(Epoch(1), "flushed", 1).ok());
  }
  int damaged = 0;
  for (const auto& file : fs::directory_iterator(live())) {
    if (file.path().extension() != (GetParam() ? kSegmentExtension : ".blob")) continue;
    std::fstream blob(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(blob)), std::istreambuf_iterator<char>());
    const float number = 123456.0f;
    const size_t at =
        bytes.find(std::string(reinterpret_cast<const char*>(&number), sizeof number));
    if (at == std::string::npos) continue;
    blob.clear();
    blob.seekp(static_cast<std::streamoff>(at));
    blob.put('\x7f');
    ++damaged;
  }
  ASSERT_EQ(damaged, 1);
  const std::vector<std::string> found = Found();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0], HasSubstr("6: latent"));
  EXPECT_THAT(found[0], HasSubstr("replay store is damaged"));
}

// Promise: Inspection changes nothing.
TEST_F(VerificationTest, LookingIntoAStoreWritesNothingAndExcludesItsProcess) {
  const auto content = [&] {
    std::map<std::string, std::pair<uint64_t, fs::file_time_type>> files;
    for (const auto& file : fs::recursive_directory_iterator(directory_.path())) {
      if (!file.is_regular_file()) continue;
      files[file.path()] = {file.file_size(), file.last_write_time()};
    }
    return files;
  };
  const auto before = content();
  {
    const auto store = ReplayStore::OpenForReading(directory_.path(), {}).value();
    EXPECT_THAT(store->List(10, EntryId(0)).value(), SizeIs(5));
    EXPECT_TRUE(store->ReadLatents(EntryId(3), 0, 3).ok());
    EXPECT_EQ(store->Offer(Epoch(1), {}).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReplayStore::Open({.directory = directory_.path()}).status().code(),
              absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(content() == before, true);
  const auto served = OpenStore(directory_.path());
  EXPECT_EQ(ReplayStore::OpenForReading(directory_.path(), {}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(AllFiniteTest, SeesTheExponentOfEveryType) {
  const auto bytes = [](auto word) {
    return std::string(reinterpret_cast<const char*>(&word), sizeof word);
  };
  EXPECT_TRUE(AllFinite(io::DType::kBF16, bytes(uint16_t{0x7f7f})));
  EXPECT_FALSE(AllFinite(io::DType::kBF16, bytes(uint16_t{0xff80})));
  EXPECT_TRUE(AllFinite(io::DType::kF16, bytes(uint16_t{0x7bff})));
  EXPECT_FALSE(AllFinite(io::DType::kF16, bytes(uint16_t{0x7e00})));
  EXPECT_TRUE(AllFinite(io::DType::kF64, bytes(std::numeric_limits<double>::max())));
  EXPECT_FALSE(AllFinite(io::DType::kF64, bytes(-std::numeric_limits<double>::infinity())));
  EXPECT_TRUE(AllFinite(io::DType::kI32, bytes(int32_t{-1})));
}

}  // namespace
}  // namespace oxbow::buffer
