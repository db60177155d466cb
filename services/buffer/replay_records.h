// SPDX-License-Identifier: Apache-2.0
// The byte layouts of the replay store. Integers are big-endian, so that byte order is number
// order.
//
// clang-format off
//   family   key                      value
//   index    's'                      1:u8 step:u64 epoch:u64
//   index    'w'                      1:u8 shards:u32 shard:u32 uid of the run that owns the store
//   index    'f'                      1:u8 step:u64: ids of steps before it are forgotten
//   index    'e' entry:u64            1:u8 retired:u8 latents:u32 latent_bytes:u64 header_bytes:u64
//                                     conditioning_bytes:u64 prompt:u64 birth:u64 reward:f64
//                                     uses:u64 last_used:u64 [segment:u64 offset:u64]
//                                     [failures:u64 rescored:f64 [tries:u64 tries_failed:u64]]
//   index    'h' entry:u64            the header, opaque: ReplayEntry without the other parts
//   index    'd' step:u64             eligible:u64 (entry:u64)*: what Draw gave this step, in order
//   index    'o' step:u64 entry:u64   nothing: an id that was offered once
//   index    'q' place:u64 entry:u64  name_bytes:u8 name, then as under 'e': an entry of the queue
//                                     `name`; lower places are older
//   payload  entry:u64 i:u32          latent i, opaque
//   payload  entry:u64 0xffffffff     the conditioning and the picture, opaque
// clang-format on
//
// A large entry is not under `payload` but in a segment (segments.h): then its record has the
// version 2 and says where. `failures` and `rescored` are there once the entry's picture was
// generated again; `rescored` is NaN if its reward was not taken. An older version wrote no tries.
//
// The leading 1 is the layout's version. docs/formats/replay_store.md says the rest of the format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "core/replay/draw.h"
#include "services/buffer/entry.h"
#include "services/buffer/ownership.h"

namespace oxbow::buffer {

struct ClockRecord {
  LearnerStep step;  // The last committed step + 1; 0 before the first.
  Epoch epoch;       // The largest seen.
  bool operator==(const ClockRecord&) const = default;
};

inline constexpr uint32_t kConditioningPart = 0xffffffffu;

std::string ClockKey();
std::string OwnerKey();
std::string ForgottenKey();
std::string HeaderKey(EntryId entry);
std::string DrawKey(LearnerStep step);
std::string OfferedKey(LearnerStep step, EntryId entry);
std::string PartKey(EntryId entry, uint32_t part);

// The key of an entry's record: of kind 'e' in best, 'q' in every other table.
std::string RecordKey(const Entry& entry);

std::string Encode(const ClockRecord& record);
std::string Encode(const Owner& record);
std::string Encode(LearnerStep forgotten);
std::string Encode(const replay::Drawn& draw);
// The record without its key. Requires a table's name of at most 255 bytes.
std::string Encode(const Entry& entry);

// Nothing if the bytes are not such a record: another version, a wrong length.
std::optional<ClockRecord> DecodeClock(std::string_view value);
std::optional<Owner> DecodeOwner(std::string_view value);
std::optional<LearnerStep> DecodeForgotten(std::string_view value);
std::optional<replay::Drawn> DecodeDraw(std::string_view value);
// Takes both kinds of key. The place of an entry of best is its id.
std::optional<Entry> DecodeEntry(std::string_view key, std::string_view value);
// The id that a record's key names; 0 if the key is too short.
EntryId EntryOfKey(std::string_view key);
// The table of a record, also of one that does not decode; of a queue whose name is lost "a queue".
std::string TableOfRecord(std::string_view key, std::string_view value);

// The `position`-th integer after a key's letter. Nothing if the key is too short.
std::optional<uint64_t> KeyInteger(std::string_view key, size_t position);

}  // namespace oxbow::buffer
