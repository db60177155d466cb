#include "services/buffer/replay_records.h"

#include <bit>

namespace oxbow::buffer {
namespace {

constexpr uint8_t kVersion = 1;

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
std::string EntryKey(EntryId entry) { return Key('e', {entry.value}); }
std::string HeaderKey(EntryId entry) { return Key('h', {entry.value}); }
std::string DrawKey(LearnerStep step) { return Key('d', {step.value}); }
std::string OfferedKey(LearnerStep step, EntryId entry) {
  return Key('o', {step.value, entry.value});
}

std::string QueuedKey(uint64_t place, EntryId entry) { return Key('q', {place, entry.value}); }

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

std::string Encode(const EntryRecord& record) {
  std::string out;
  Put(out, kVersion);
  Put(out, static_cast<uint8_t>(record.retired));
  Put(out, record.extent.latents);
  Put(out, record.extent.latent_bytes);
  Put(out, record.extent.header_bytes);
  Put(out, record.extent.conditioning_bytes);
  Put(out, record.facts.prompt.value);
  Put(out, record.facts.birth.value);
  Put(out, std::bit_cast<uint64_t>(record.facts.reward));
  Put(out, record.facts.uses);
  Put(out, record.facts.last_used.value);
  return out;
}

std::string Encode(const DrawRecord& record) {
  std::string out;
  Put(out, record.eligible);
  for (const EntryId entry : record.entries) Put(out, entry.value);
  return out;
}

std::string Encode(const QueuedRecord& record) {
  std::string out;
  Put(out, static_cast<uint8_t>(record.table.size()));
  return out + record.table + Encode(record.record);
}

std::optional<ClockRecord> DecodeClock(std::string_view value) {
  Reader reader(value);
  if (reader.Take<uint8_t>() != kVersion) return std::nullopt;
  ClockRecord record;
  record.step = LearnerStep(reader.Take<uint64_t>());
  record.epoch = Epoch(reader.Take<uint64_t>());
  return reader.done() ? std::optional(record) : std::nullopt;
}

std::optional<EntryRecord> DecodeEntry(EntryId entry, std::string_view value) {
  Reader reader(value);
  if (reader.Take<uint8_t>() != kVersion) return std::nullopt;
  EntryRecord record;
  record.facts.id = entry;
  record.retired = reader.Take<uint8_t>() != 0;
  record.extent.latents = reader.Take<uint32_t>();
  record.extent.latent_bytes = reader.Take<uint64_t>();
  record.extent.header_bytes = reader.Take<uint64_t>();
  record.extent.conditioning_bytes = reader.Take<uint64_t>();
  record.facts.prompt = PromptId(reader.Take<uint64_t>());
  record.facts.birth = LearnerStep(reader.Take<uint64_t>());
  record.facts.reward = std::bit_cast<double>(reader.Take<uint64_t>());
  record.facts.uses = reader.Take<uint64_t>();
  record.facts.last_used = LearnerStep(reader.Take<uint64_t>());
  return reader.done() ? std::optional(record) : std::nullopt;
}

std::optional<DrawRecord> DecodeDraw(std::string_view value) {
  Reader reader(value);
  DrawRecord record;
  record.eligible = reader.Take<uint64_t>();
  while (reader.ok() && reader.left() > 0) {
    record.entries.push_back(EntryId(reader.Take<uint64_t>()));
  }
  return reader.done() ? std::optional(record) : std::nullopt;
}

std::optional<QueuedRecord> DecodeQueued(EntryId entry, std::string_view value) {
  if (value.empty()) return std::nullopt;
  const size_t name = static_cast<uint8_t>(value[0]);
  if (value.size() < 1 + name) return std::nullopt;
  const std::optional<EntryRecord> record = DecodeEntry(entry, value.substr(1 + name));
  if (!record.has_value()) return std::nullopt;
  return QueuedRecord{std::string(value.substr(1, name)), *record};
}

std::optional<uint64_t> KeyInteger(std::string_view key, size_t position) {
  const size_t start = 1 + 8 * position;
  if (key.size() < start + 8) return std::nullopt;
  return Reader(key.substr(start)).Take<uint64_t>();
}

}  // namespace oxbow::buffer
