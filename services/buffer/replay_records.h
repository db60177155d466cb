// The byte layouts of the replay store. Integers are big-endian, so that byte order is number
// order.
//
// clang-format off
//   family   key                      value
//   index    's'                      1:u8 step:u64 epoch:u64
//   index    'e' entry:u64            1:u8 retired:u8 latents:u32 latent_bytes:u64 header_bytes:u64
//                                     conditioning_bytes:u64 prompt:u64 birth:u64 reward:f64
//                                     uses:u64 last_used:u64
//   index    'h' entry:u64            the entry's header, opaque: ReplayEntry without tensor bytes
//   index    'd' step:u64             eligible:u64 (entry:u64)*: what Draw gave this step, in order
//   index    'o' step:u64 entry:u64   nothing: an id that was offered once
//   index    'q' place:u64 entry:u64  name_bytes:u8 name, then as of 'e': entry of a queue; lower
//                                     places are older
//   payload  entry:u64 i:u32          latent i, opaque
//   payload  entry:u64 0xffffffff     the conditioning, opaque
// clang-format on
//
// The leading 1 is the layout's version. docs/formats/replay_store.md is the same table in prose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "core/replay/entry_facts.h"

namespace oxbow::buffer {

// Sizes of an entry's parts.
struct EntryExtent {
  uint32_t latents = 0;
  uint64_t latent_bytes = 0;  // Of each latent.
  uint64_t header_bytes = 0;
  uint64_t conditioning_bytes = 0;

  uint64_t bytes() const { return latents * latent_bytes + header_bytes + conditioning_bytes; }
  bool operator==(const EntryExtent&) const = default;
};

struct EntryRecord {
  replay::EntryFacts facts;
  EntryExtent extent;
  bool retired = false;  // No longer live, kept because a step that is not committed drew it.
  bool operator==(const EntryRecord&) const = default;
};

// An entry of a queue, with the name of its table.
struct QueuedRecord {
  std::string table;
  EntryRecord record;
  bool operator==(const QueuedRecord&) const = default;
};

struct ClockRecord {
  LearnerStep step;  // The last committed step + 1; 0 before the first.
  Epoch epoch;       // The largest seen.
  bool operator==(const ClockRecord&) const = default;
};

struct DrawRecord {
  uint64_t eligible = 0;
  std::vector<EntryId> entries;
  bool operator==(const DrawRecord&) const = default;
};

inline constexpr uint32_t kConditioningPart = 0xffffffffu;

std::string ClockKey();
std::string EntryKey(EntryId entry);
std::string HeaderKey(EntryId entry);
std::string DrawKey(LearnerStep step);
std::string OfferedKey(LearnerStep step, EntryId entry);
std::string QueuedKey(uint64_t place, EntryId entry);
std::string PartKey(EntryId entry, uint32_t part);

std::string Encode(const ClockRecord& record);
std::string Encode(const EntryRecord& record);
std::string Encode(const DrawRecord& record);
// Requires a name of at most 255 bytes.
std::string Encode(const QueuedRecord& record);

// Nothing if the bytes are not such a record: another version, a wrong length.
std::optional<ClockRecord> DecodeClock(std::string_view value);
std::optional<EntryRecord> DecodeEntry(EntryId entry, std::string_view value);
std::optional<DrawRecord> DecodeDraw(std::string_view value);
std::optional<QueuedRecord> DecodeQueued(EntryId entry, std::string_view value);

// The `position`-th integer after a key's letter. Nothing if the key is too short.
std::optional<uint64_t> KeyInteger(std::string_view key, size_t position);

}  // namespace oxbow::buffer
