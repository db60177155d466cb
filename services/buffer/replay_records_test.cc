// Stored bytes, spelled out: changing one of these breaks stores on disk.
#include "services/buffer/replay_records.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace oxbow::buffer {
namespace {

std::string Hex(const std::string& bytes) { return std::string(absl::BytesToHexString(bytes)); }

TEST(ReplayRecordsTest, BytesAreThese) {
  EXPECT_EQ(Hex(EntryKey(EntryId(0x0102))), "650000000000000102");
  EXPECT_EQ(Hex(OfferedKey(LearnerStep(1), EntryId(2))), "6f00000000000000010000000000000002");
  EXPECT_EQ(Hex(PartKey(EntryId(1), 2)), "000000000000000100000002");
  EXPECT_EQ(Hex(Encode(ClockRecord{LearnerStep(3), Epoch(4)})),
            "0100000000000000030000000000000004");
  EXPECT_EQ(Hex(Encode(DrawRecord{1, {EntryId(2)}})), "00000000000000010000000000000002");
  EntryRecord entry;
  entry.facts = {EntryId(9), PromptId(5), LearnerStep(6), 1.0, 7, LearnerStep(8)};
  entry.extent = {1, 2, 3, 4};
  entry.retired = true;
  EXPECT_EQ(Hex(Encode(entry)),
            "010100000001000000000000000200000000000000030000000000000004"
            "000000000000000500000000000000063ff000000000000000000000000000070000000000000008");
  EXPECT_EQ(DecodeEntry(EntryId(9), Encode(entry)), entry);
  EXPECT_EQ(Hex(QueuedKey(1, EntryId(2))), "7100000000000000010000000000000002");
  const QueuedRecord queued{"ab", entry};
  EXPECT_EQ(Hex(Encode(queued)), "026162" + Hex(Encode(entry)));
  EXPECT_EQ(DecodeQueued(EntryId(9), Encode(queued)), queued);
}

TEST(ReplayRecordsTest, OtherBytesAreNoRecord) {
  const std::string clock = Encode(ClockRecord{LearnerStep(3), Epoch(4)});
  EXPECT_EQ(DecodeClock(clock), (ClockRecord{LearnerStep(3), Epoch(4)}));
  EXPECT_FALSE(DecodeClock(clock.substr(1)).has_value());
  EXPECT_FALSE(DecodeClock(clock + "x").has_value());
  EXPECT_FALSE(DecodeClock("\2" + clock.substr(1)).has_value());
  const std::string entry = Encode(EntryRecord());
  for (size_t size = 0; size < entry.size(); ++size) {
    EXPECT_FALSE(DecodeEntry(EntryId(1), entry.substr(0, size)).has_value()) << size;
  }
  const std::string queued = Encode(QueuedRecord{"ab", EntryRecord()});
  for (size_t size = 0; size < queued.size(); ++size) {
    EXPECT_FALSE(DecodeQueued(EntryId(1), queued.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(DecodeDraw("1234567").has_value());
  EXPECT_FALSE(DecodeDraw("123456789").has_value());
}

}  // namespace
}  // namespace oxbow::buffer
