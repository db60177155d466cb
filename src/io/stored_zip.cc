// SPDX-License-Identifier: Apache-2.0
#include "io/stored_zip.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr size_t kEndSize = 22, kLocatorSize = 20, kEnd64Size = 56, kEntrySize = 46,
                 kLocalSize = 30;
constexpr uint64_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50,
                   kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr size_t kCommentMax = 0xffff;
constexpr uint64_t kSeeZip64 = 0xffffffff;
constexpr uint64_t kZip64Field = 1;
constexpr uint64_t kEncrypted = 1;

// Little-endian. Requires the bytes to be there.
uint64_t NumberAt(std::string_view bytes, size_t at, size_t width) {
  uint64_t number = 0;
  for (size_t i = width; i-- > 0;) number = number << 8 | static_cast<uint8_t>(bytes[at + i]);
  return number;
}

// A foreign name in a message of one line.
std::string Shown(const std::string& name) { return absl::CHexEscape(name.substr(0, 100)); }

absl::Status Corrupt(const std::string& what) {
  return absl::DataLossError("corrupt ZIP archive: " + what);
}

// Part of the file, or nothing if it is not within.
std::optional<std::string_view> PartOf(std::string_view file, uint64_t begin, uint64_t size) {
  if (begin > file.size() || size > file.size() - begin) return std::nullopt;
  return file.substr(begin, size);
}

// Where the record at the end of the file begins. A comment may follow it.
std::optional<size_t> FindEnd(std::string_view file) {
  if (file.size() < kEndSize) return std::nullopt;
  const size_t last = file.size() - kEndSize;
  for (size_t at = last; last - at <= kCommentMax; --at) {
    if (NumberAt(file, at, 4) == kEndMark && NumberAt(file, at + 20, 2) == last - at) return at;
    if (at == 0) break;
  }
  return std::nullopt;
}

struct Directory {
  uint64_t entries = 0;
  std::string_view bytes;
};

absl::StatusOr<Directory> FindDirectory(std::string_view file) {
  const std::optional<size_t> end = FindEnd(file);
  if (!end.has_value()) {
    return absl::DataLossError(
        absl::StrCat("truncated, or no ZIP archive: ", file.size(), " bytes"));
  }
  uint64_t entries = NumberAt(file, *end + 10, 2);
  uint64_t size = NumberAt(file, *end + 12, 4), begin = NumberAt(file, *end + 16, 4);
  if (*end >= kLocatorSize && NumberAt(file, *end - kLocatorSize, 4) == kLocatorMark) {
    const auto end64 = PartOf(file, NumberAt(file, *end - kLocatorSize + 8, 8), kEnd64Size);
    if (!end64.has_value() || NumberAt(*end64, 0, 4) != kEnd64Mark) return Corrupt("no Zip64 end");
    entries = NumberAt(*end64, 32, 8);
    size = NumberAt(*end64, 40, 8);
    begin = NumberAt(*end64, 48, 8);
  }
  const auto bytes = PartOf(file, begin, size);
  if (!bytes.has_value()) return Corrupt("its directory is not within the file");
  return Directory{.entries = entries, .bytes = *bytes};
}

struct Entry {
  std::string name;
  uint64_t flags = 0, method = 0, stored = 0, size = 0, local = 0;
};

// Takes 64-bit numbers from the extra field where the entry's own say so.
absl::Status ReadZip64(std::string_view extra, Entry& entry) {
  while (extra.size() >= 4) {
    const uint64_t kind = NumberAt(extra, 0, 2);
    const auto field = PartOf(extra, 4, NumberAt(extra, 2, 2));
    if (!field.has_value()) break;
    size_t at = 0;
    for (uint64_t* const number : {&entry.size, &entry.stored, &entry.local}) {
      if (kind != kZip64Field || *number != kSeeZip64) continue;
      if (at + 8 > field->size()) return Corrupt("a short Zip64 field: " + Shown(entry.name));
      *number = NumberAt(*field, at, 8);
      at += 8;
    }
    extra.remove_prefix(4 + field->size());
  }
  return absl::OkStatus();
}

// Takes the next entry off `directory`.
absl::StatusOr<Entry> TakeEntry(std::string_view& directory) {
  if (directory.size() < kEntrySize || NumberAt(directory, 0, 4) != kEntryMark) {
    return Corrupt("its directory ends early");
  }
  const uint64_t name = NumberAt(directory, 28, 2), extra = NumberAt(directory, 30, 2);
  const uint64_t comment = NumberAt(directory, 32, 2);
  if (directory.size() - kEntrySize < name + extra + comment) {
    return Corrupt("its directory ends early");
  }
  Entry entry{.name = std::string(directory.substr(kEntrySize, name)),
              .flags = NumberAt(directory, 8, 2),
              .method = NumberAt(directory, 10, 2),
              .stored = NumberAt(directory, 20, 4),
              .size = NumberAt(directory, 24, 4),
              .local = NumberAt(directory, 42, 4)};
  OXBOW_RETURN_IF_ERROR(ReadZip64(directory.substr(kEntrySize + name, extra), entry));
  directory.remove_prefix(kEntrySize + name + extra + comment);
  return entry;
}

absl::StatusOr<std::string_view> BytesOf(std::string_view file, const Entry& entry) {
  if (entry.method != 0 || entry.stored != entry.size || (entry.flags & kEncrypted) != 0) {
    return absl::FailedPreconditionError(
        "the ZIP archive has a compressed or encrypted entry, which torch.save does not write: " +
        Shown(entry.name));
  }
  const auto local = PartOf(file, entry.local, kLocalSize);
  if (!local.has_value() || NumberAt(*local, 0, 4) != kLocalMark) {
    return Corrupt("an entry is not where the directory says: " + Shown(entry.name));
  }
  const uint64_t names = NumberAt(*local, 26, 2) + NumberAt(*local, 28, 2);
  const auto bytes = PartOf(file, entry.local + kLocalSize + names, entry.size);
  if (!bytes.has_value()) return Corrupt("an entry is not within the file: " + Shown(entry.name));
  return *bytes;
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string_view>> ReadStoredZip(std::string_view file) {
  OXBOW_ASSIGN_OR_RETURN(Directory directory, FindDirectory(file));
  std::map<std::string, std::string_view> entries;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    OXBOW_ASSIGN_OR_RETURN(const Entry entry, TakeEntry(directory.bytes));
    OXBOW_ASSIGN_OR_RETURN(const std::string_view bytes, BytesOf(file, entry));
    if (!entries.emplace(entry.name, bytes).second)
      return Corrupt("two entries: " + Shown(entry.name));
  }
  return entries;
}

}  // namespace oxbow::io
