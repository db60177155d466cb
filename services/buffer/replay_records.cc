// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/replay_records.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"

namespace oxbow::buffer {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kInSegment = 2;  // The version of the record of an entry that is in a segment.
constexpr char kBestLetter = 'e';
constexpr char kQueueLetter = 'q';
constexpr double kNoReward = std::numeric_limits<double>::quiet_NaN();

template <typename T>
void Put(std::string& out, T value) {
  for (int shift = 8 * (sizeof(T) - 1); shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> shift));
  }
}

// Takes integers off the front; `ok` turns false when they run out.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Take() {
    if (rest_.size() < sizeof(T)) {
      ok_ = false;
      rest_ = {};
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value = value << 8 | static_cast<uint8_t>(rest_[i]);
    rest_.remove_prefix(sizeof(T));
    return static_cast<T>(value);
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }
  size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

std::string Key(char letter, std::initializer_list<uint64_t> integers) {
  std::string key(1, letter);
  for (const uint64_t integer : integers) Put(key, integer);
  return key;
}

}  // namespace

std::string ClockKey() { return Key('s', {}); }
std::string OwnerKey() { return Key('w', {}); }
std::string ForgottenKey() { return Key('f', {}); }
std::string HeaderKey(EntryId entry) { return Key('h', {entry.value}); }
std::string DrawKey(LearnerStep step) { return Key('d', {step.value}); }
std::string OfferedKey(LearnerStep step, EntryId entry) {
  return Key('o', {step.value, entry.value});
}

std::string RecordKey(const Entry& entry) {
  return entry.table == replay::kBestTable ? Key(kBestLetter, {entry.id.value})
                                           : Key(kQueueLetter, {entry.place, entry.id.value});
}

std::string PartKey(EntryId entry, uint32_t part) {
  std::string key;
  Put(key, entry.value);
  Put(key, part);
  return key;
}

std::string Encode(const ClockRecord& record) {
  std::string out;
  Put(out, kVersion);
  Put(out, record.step.value);
  Put(out, record.epoch.value);
  return out;
}

std::string Encode(const Owner& record) {
  std::string out;
  Put(out, kVersion);
  Put(out, record.shards);
  Put(out, record.shard);
  return out + record.run;
}

std::string Encode(LearnerStep forgotten) {
  std::string out;
  Put(out, kVersion);
  Put(out, forgotten.value);
  return out;
}

std::string Encode(const Entry& entry) {
  std::string out;
  if (entry.table != replay::kBestTable) {
    Put(out, static_cast<uint8_t>(entry.table.size()));
    out += entry.table;
  }
  Put(out, entry.location.segment == 0 ? kVersion : kInSegment);
  Put(out, static_cast<uint8_t>(entry.retired));
  Put(out, entry.latent_count);
  Put(out, entry.latent_bytes);
  Put(out, entry.header_bytes);
  Put(out, entry.conditioning_bytes);
  Put(out, entry.prompt.value);
  Put(out, entry.birth.value);
  Put(out, std::bit_cast<uint64_t>(entry.reward));
  Put(out, entry.uses);
  Put(out, entry.last_used.value);
  if (entry.location.segment != 0) {
    Put(out, entry.location.segment);
    Put(out, entry.location.offset);
  }
  if (entry.failures == 0 && !entry.rescored.has_value() && entry.tries == 0) return out;
  Put(out, entry.failures);
  Put(out, std::bit_cast<uint64_t>(entry.rescored.value_or(kNoReward)));
  if (entry.tries == 0) return out;
  Put(out, entry.tries);
  Put(out, entry.tries_failed);
  return out;
}

std::string Encode(const replay::Drawn& draw) {
  std::string out;
  Put(out, draw.eligible);
  for (const EntryId entry : draw.entries) Put(out, entry.value);
  return out;
}

std::optional<ClockRecord> DecodeClock(std::string_view value) {
  Reader reader(value);
  if (reader.Take<uint8_t>() != kVersion) return std::nullopt;
  ClockRecord record;
  record.step = LearnerStep(reader.Take<uint64_t>());
  record.epoch = Epoch(reader.Take<uint64_t>());
  return reader.done() ? std::optional(record) : std::nullopt;
}

std::optional<Owner> DecodeOwner(std::string_view value) {
  Reader reader(value);
  if (reader.Take<uint8_t>() != kVersion) return std::nullopt;
  Owner owner;
  owner.shards = reader.Take<uint32_t>();
  owner.shard = reader.Take<uint32_t>();
  if (!reader.ok()) return std::nullopt;
  owner.run = std::string(value.substr(value.size() - reader.left()));
  return owner;
}

std::optional<LearnerStep> DecodeForgotten(std::string_view value) {
  Reader reader(value);
  if (reader.Take<uint8_t>() != kVersion) return std::nullopt;
  const LearnerStep step(reader.Take<uint64_t>());
  return reader.done() ? std::optional(step) : std::nullopt;
}

std::optional<replay::Drawn> DecodeDraw(std::string_view value) {
  Reader reader(value);
  replay::Drawn draw;
  draw.eligible = reader.Take<uint64_t>();
  while (reader.ok() && reader.left() > 0) {
    draw.entries.push_back(EntryId(reader.Take<uint64_t>()));
  }
  return reader.done() ? std::optional(draw) : std::nullopt;
}

EntryId EntryOfKey(std::string_view key) {
  const bool queued = !key.empty() && key[0] == kQueueLetter;
  return EntryId(KeyInteger(key, queued ? 1 : 0).value_or(0));
}

std::string TableOfRecord(std::string_view key, std::string_view value) {
  if (key.empty() || key[0] != kQueueLetter) return replay::kBestTable;
  const size_t name = value.empty() ? 0 : static_cast<uint8_t>(value[0]);
  const bool legible = name > 0 && value.size() > name &&
                       std::all_of(value.begin() + 1, value.begin() + 1 + static_cast<int>(name),
                                   [](unsigned char c) { return absl::ascii_isgraph(c); });
  return legible ? std::string(value.substr(1, name)) : "a queue";
}

std::optional<Entry> DecodeEntry(std::string_view key, std::string_view value) {
  Entry entry;
  entry.id = EntryOfKey(key);
  entry.place = KeyInteger(key, 0).value_or(0);
  if (!key.empty() && key[0] == kQueueLetter) {
    const size_t name = value.empty() ? 0 : static_cast<uint8_t>(value[0]);
    if (value.size() < 1 + name) return std::nullopt;
    entry.table = std::string(value.substr(1, name));
    value.remove_prefix(1 + name);
  }
  Reader reader(value);
  const auto version = reader.Take<uint8_t>();
  if (version != kVersion && version != kInSegment) return std::nullopt;
  entry.retired = reader.Take<uint8_t>() != 0;
  entry.latent_count = reader.Take<uint32_t>();
  entry.latent_bytes = reader.Take<uint64_t>();
  entry.header_bytes = reader.Take<uint64_t>();
  entry.conditioning_bytes = reader.Take<uint64_t>();
  entry.prompt = PromptId(reader.Take<uint64_t>());
  entry.birth = LearnerStep(reader.Take<uint64_t>());
  entry.reward = std::bit_cast<double>(reader.Take<uint64_t>());
  entry.uses = reader.Take<uint64_t>();
  entry.last_used = LearnerStep(reader.Take<uint64_t>());
  if (version == kInSegment) {
    entry.location.segment = reader.Take<uint64_t>();
    entry.location.offset = reader.Take<uint64_t>();
    if (entry.location.segment == 0) return std::nullopt;
  }
  if (reader.left() > 0) {
    entry.failures = reader.Take<uint64_t>();
    const auto reward = std::bit_cast<double>(reader.Take<uint64_t>());
    if (!std::isnan(reward)) entry.rescored = reward;
  }
  if (reader.left() > 0) {
    entry.tries = reader.Take<uint64_t>();
    entry.tries_failed = reader.Take<uint64_t>();
    if (entry.tries_failed > entry.tries) return std::nullopt;
  }
  return reader.done() ? std::optional(std::move(entry)) : std::nullopt;
}

std::optional<uint64_t> KeyInteger(std::string_view key, size_t position) {
  const size_t start = 1 + 8 * position;
  if (key.size() < start + 8) return std::nullopt;
  return Reader(key.substr(start)).Take<uint64_t>();
}

}  // namespace oxbow::buffer
