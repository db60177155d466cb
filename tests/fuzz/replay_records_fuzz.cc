// SPDX-License-Identifier: Apache-2.0
// For any key and value of the replay store: a record that decodes is encoded to the same bytes,
// and nothing is read past an end.
#include "base/check.h"
#include "services/buffer/replay_records.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow::buffer;  // NOLINT: a file of one function.
  const auto parts = oxbow::fuzz::Messages(oxbow::fuzz::Text(data, size));
  if (parts.size() != 2) return 0;
  const std::string_view key = parts[0], value = parts[1];
  (void)EntryOfKey(key);
  (void)KeyInteger(key, 1);
  if (const auto clock = DecodeClock(value)) {
    OXBOW_CHECK(Encode(*clock) == value);
  }
  if (const auto draw = DecodeDraw(value)) {
    OXBOW_CHECK(Encode(*draw) == value);
  }
  if (const auto entry = DecodeEntry(key, value)) {
    const auto again = DecodeEntry(RecordKey(*entry), Encode(*entry));
    OXBOW_CHECK(again.has_value());
    OXBOW_CHECK(Encode(*again) == Encode(*entry));
  }
  return 0;
}
