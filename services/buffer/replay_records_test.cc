// SPDX-License-Identifier: Apache-2.0
// Stored bytes, spelled out: changing one of these breaks stores on disk.
#include "services/buffer/replay_records.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace oxbow::buffer {
namespace {

std::string Hex(const std::string& bytes) { return std::string(absl::BytesToHexString(bytes)); }

// Every number another one.
Entry TestRecord() {
  return {.id = EntryId(9),
          .place = 9,
          .prompt = PromptId(5),
          .birth = LearnerStep(6),
          .reward = 1.0,
          .uses = 7,
          .last_used = LearnerStep(8),
          .retired = true,
          .latent_count = 1,
          .latent_bytes = 2,
          .header_bytes = 3,
          .conditioning_bytes = 4};
}

TEST(ReplayRecordsTest, BytesAreThese) {
  EXPECT_EQ(Hex(OfferedKey(LearnerStep(1), EntryId(2))), "6f00000000000000010000000000000002");
  EXPECT_EQ(Hex(PartKey(EntryId(1), 2)), "000000000000000100000002");
  EXPECT_EQ(Hex(Encode(ClockRecord{LearnerStep(3), Epoch(4)})),
            "0100000000000000030000000000000004");
  EXPECT_EQ(Hex(OwnerKey() + Encode(Owner{.run = "ab", .shards = 3, .shard = 2})),
            "770100000003000000026162");
  EXPECT_EQ(Hex(ForgottenKey() + Encode(LearnerStep(5))), "66010000000000000005");
  EXPECT_EQ(Hex(Encode(replay::Drawn{1, {EntryId(2)}})), "00000000000000010000000000000002");
}

TEST(ReplayRecordsTest, ARecordOfBestAndOneOfAQueueDifferByKeyAndName) {
  Entry entry = TestRecord();
  const std::string record =
      "010100000001000000000000000200000000000000030000000000000004"
      "000000000000000500000000000000063ff000000000000000000000000000070000000000000008";
  EXPECT_EQ(Hex(RecordKey(entry)), "650000000000000009");
  EXPECT_EQ(Hex(Encode(entry)), record);
  EXPECT_EQ(DecodeEntry(RecordKey(entry), Encode(entry)), entry);
  entry.table = "ab";
  entry.place = 1;
  EXPECT_EQ(Hex(RecordKey(entry)), "7100000000000000010000000000000009");
  EXPECT_EQ(Hex(Encode(entry)), "026162" + record);
  EXPECT_EQ(DecodeEntry(RecordKey(entry), Encode(entry)), entry);
}

TEST(ReplayRecordsTest, ARecordTellsOfItsRegenerationsOnceThereAreSome) {
  Entry entry = TestRecord();
  const std::string before = Encode(entry);
  entry.failures = 3;
  EXPECT_EQ(Hex(Encode(entry)).substr(2 * before.size()), "00000000000000037ff8000000000000");
  EXPECT_EQ(DecodeEntry(RecordKey(entry), Encode(entry)), entry) << "the reward stayed";
  entry.rescored = 0.5;
  EXPECT_EQ(Hex(Encode(entry)).substr(2 * before.size()), "00000000000000033fe0000000000000");
  EXPECT_EQ(DecodeEntry(RecordKey(entry), Encode(entry)), entry);
  const std::string record = Encode(entry);
  for (size_t size = before.size() + 1; size < record.size(); ++size) {
    EXPECT_FALSE(DecodeEntry(RecordKey(entry), record.substr(0, size)).has_value()) << size;
  }
}

TEST(ReplayRecordsTest, ARecordCountsAllRegenerationsAndOneWithoutTheCountsIsRead) {
  Entry entry = TestRecord();
  entry.failures = 1;
  const std::string older = Encode(entry);
  entry.tries = 5;
  entry.tries_failed = 2;
  const std::string record = Encode(entry);
  EXPECT_EQ(record.substr(0, older.size()), older);
  EXPECT_EQ(Hex(record.substr(older.size())), "00000000000000050000000000000002");
  EXPECT_EQ(DecodeEntry(RecordKey(entry), record), entry);
  EXPECT_EQ(DecodeEntry(RecordKey(entry), older)->tries, 0u);
  for (size_t size = older.size() + 1; size < record.size(); ++size) {
    EXPECT_FALSE(DecodeEntry(RecordKey(entry), record.substr(0, size)).has_value()) << size;
  }
  entry.tries_failed = 6;
  EXPECT_FALSE(DecodeEntry(RecordKey(entry), Encode(entry)).has_value()) << "more than all";
}

TEST(ReplayRecordsTest, OtherBytesAreNoRecord) {
  const std::string clock = Encode(ClockRecord{LearnerStep(3), Epoch(4)});
  EXPECT_EQ(DecodeClock(clock), (ClockRecord{LearnerStep(3), Epoch(4)}));
  EXPECT_FALSE(DecodeClock(clock.substr(1)).has_value());
  EXPECT_FALSE(DecodeClock(clock + "x").has_value());
  EXPECT_FALSE(DecodeClock("\2" + clock.substr(1)).has_value());
  const Owner owner{.run = "ab", .shards = 3, .shard = 2};
  EXPECT_EQ(DecodeOwner(Encode(owner)), owner);
  EXPECT_FALSE(DecodeOwner(Encode(owner).substr(0, 8)).has_value());
  EXPECT_FALSE(DecodeOwner("\2" + Encode(owner).substr(1)).has_value());
  EXPECT_EQ(DecodeForgotten(Encode(LearnerStep(5))), LearnerStep(5));
  EXPECT_FALSE(DecodeForgotten(Encode(LearnerStep(5)) + "x").has_value());
  for (const char* table : {"best", "ab"}) {
    Entry entry = TestRecord();
    entry.table = table;
    const std::string record = Encode(entry);
    for (size_t size = 0; size < record.size(); ++size) {
      EXPECT_FALSE(DecodeEntry(RecordKey(entry), record.substr(0, size)).has_value()) << size;
    }
  }
  EXPECT_FALSE(DecodeDraw("1234567").has_value());
  EXPECT_FALSE(DecodeDraw("123456789").has_value());
}

}  // namespace
}  // namespace oxbow::buffer
