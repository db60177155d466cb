// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/segments.h"

#include <rocksdb/env.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/status_macros.h"
#include "services/buffer/database.h"
#include "services/buffer/replay_directory.h"
#include "services/buffer/replay_records.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPartHeader = 24;
constexpr size_t kChecksum = 8;
constexpr size_t kOpenFilesMax = 256;
constexpr size_t kGatheredMax = 256 << 10;

fs::path FileName(const fs::path& directory, uint64_t segment) {
  return directory / absl::StrFormat("%06d%s", segment, kSegmentExtension);
}

rocksdb::Env* OrDefault(rocksdb::Env* environment) {
  return environment != nullptr ? environment : rocksdb::Env::Default();
}

template <typename T>
void PutBigEndian(std::string& out, T value) {
  for (int shift = 8 * (sizeof(T) - 1); shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> shift));
  }
}

// The name behind the checksum in front of a part's bytes.
std::string NameOfPart(EntryId entry, uint32_t part, uint64_t size) {
  std::string name;
  PutBigEndian(name, entry.value);
  PutBigEndian(name, part);
  PutBigEndian(name, static_cast<uint32_t>(size));
  return name;
}

// Checksum of the name and the bytes' own checksum, so that the bytes need not be copied behind the
// name.
std::string ChecksumOfPart(const std::string& name, std::string_view bytes) {
  return Checksum128(name + Checksum128(bytes)).substr(0, kChecksum);
}

// Checks the part in front of `raw` and takes it off; nothing if it is damaged.
std::optional<std::string_view> TakePart(std::string_view& raw, EntryId entry, uint32_t part,
                                         uint64_t size) {
  if (raw.size() < kPartHeader + size) return std::nullopt;
  const std::string name = NameOfPart(entry, part, size);
  const std::string_view bytes = raw.substr(kPartHeader, size);
  if (raw.substr(kChecksum, name.size()) != name) return std::nullopt;
  if (raw.substr(0, kChecksum) != ChecksumOfPart(name, bytes)) return std::nullopt;
  raw.remove_prefix(kPartHeader + size);
  return bytes;
}

absl::Status DamagedSegment(const Entry& record, const char* what) {
  return absl::DataLossError(absl::StrCat("replay store is damaged: ", what, " of entry ",
                                          record.id.value, " in segment ",
                                          record.location.segment));
}

}  // namespace

uint64_t SegmentBytes(const Entry& record) {
  return record.latent_count * (kPartHeader + record.latent_bytes) + kPartHeader +
         record.conditioning_bytes;
}

absl::Status SyncNames(const fs::path& directory, rocksdb::Env* environment) {
  std::unique_ptr<rocksdb::Directory> names;
  rocksdb::Status status = OrDefault(environment)->NewDirectory(directory.string(), &names);
  if (status.ok()) status = names->Fsync();
  return FromRocks(status, directory);
}

SegmentWriter::SegmentWriter(fs::path directory, rocksdb::Env* environment)
    : directory_(std::move(directory)), environment_(OrDefault(environment)) {}

SegmentWriter::~SegmentWriter() = default;

absl::Status SegmentWriter::WriteGathered() {
  if (gathered_.empty()) return absl::OkStatus();
  OXBOW_RETURN_IF_ERROR(FromRocks(file_->Append(gathered_), directory_));
  gathered_.clear();
  return absl::OkStatus();
}

absl::Status SegmentWriter::Append(std::string_view bytes) {
  dirty_ = true;
  written_ += bytes.size();
  if (bytes.size() < kGatheredMax) {
    gathered_ += bytes;
    return gathered_.size() < kGatheredMax ? absl::OkStatus() : WriteGathered();
  }
  OXBOW_RETURN_IF_ERROR(WriteGathered());
  return FromRocks(file_->Append(rocksdb::Slice(bytes.data(), bytes.size())), directory_);
}

absl::Status SegmentWriter::PutRaw(Location location, std::string_view bytes) {
  if (location.segment != number_) {
    OXBOW_RETURN_IF_ERROR(Sync());
    file_.reset();
    number_ = location.segment;
    written_ = 0;
    OXBOW_RETURN_IF_ERROR(
        FromRocks(environment_->NewWritableFile(FileName(directory_, number_).string(), &file_,
                                                rocksdb::EnvOptions()),
                  directory_));
    OXBOW_RETURN_IF_ERROR(SyncNames(directory_, environment_));
  }
  OXBOW_CHECK(file_ != nullptr && written_ == location.offset)
      << "segment " << number_ << " has " << written_ << " bytes, not " << location.offset;
  return Append(bytes);
}

absl::Status SegmentWriter::Put(const Entry& entry) {
  const std::string_view latents = entry.latents;
  for (uint32_t i = 0; i <= entry.latent_count; ++i) {
    const bool last = i == entry.latent_count;
    const std::string_view bytes = last
                                       ? std::string_view(entry.conditioning)
                                       : latents.substr(i * entry.latent_bytes, entry.latent_bytes);
    const std::string name = NameOfPart(entry.id, last ? kConditioningPart : i, bytes.size());
    const std::string header = ChecksumOfPart(name, bytes) + name;
    OXBOW_RETURN_IF_ERROR(i == 0 ? PutRaw(entry.location, header) : Append(header));
    OXBOW_RETURN_IF_ERROR(Append(bytes));
  }
  return absl::OkStatus();
}

absl::Status SegmentWriter::Sync() {
  if (!dirty_) return absl::OkStatus();
  OXBOW_RETURN_IF_ERROR(WriteGathered());
  OXBOW_RETURN_IF_ERROR(FromRocks(file_->Sync(), directory_));
  dirty_ = false;
  return absl::OkStatus();
}

SegmentReader::SegmentReader(fs::path directory, rocksdb::Env* environment)
    : directory_(std::move(directory)), environment_(OrDefault(environment)) {}

SegmentReader::~SegmentReader() = default;

absl::StatusOr<std::shared_ptr<rocksdb::RandomAccessFile>> SegmentReader::FileOf(
    uint64_t segment) const {
  absl::MutexLock lock(&mutex_);
  if (const auto open = files_.find(segment); open != files_.end()) return open->second;
  std::unique_ptr<rocksdb::RandomAccessFile> file;
  OXBOW_RETURN_IF_ERROR(
      FromRocks(environment_->NewRandomAccessFile(FileName(directory_, segment).string(), &file,
                                                  rocksdb::EnvOptions()),
                directory_));
  if (files_.size() >= kOpenFilesMax) files_.erase(files_.begin());
  return files_[segment] = std::move(file);
}

absl::Status SegmentReader::ReadInto(char* bytes, const Entry& record, uint64_t offset,
                                     uint64_t size) const {
  if (size == 0) return absl::OkStatus();  // Some file systems call a read of nothing an error.
  const auto file = FileOf(record.location.segment);
  if (absl::IsNotFound(file.status())) return DamagedSegment(record, "the file");
  OXBOW_RETURN_IF_ERROR(file.status());
  rocksdb::Slice read;
  OXBOW_RETURN_IF_ERROR(
      FromRocks((*file)->Read(record.location.offset + offset, size, &read, bytes), directory_));
  if (read.size() != size) return DamagedSegment(record, "the end");
  if (read.data() != bytes) std::memcpy(bytes, read.data(), size);
  return absl::OkStatus();
}

absl::StatusOr<std::string> SegmentReader::Read(const Entry& record, uint64_t offset,
                                                uint64_t size) const {
  std::string bytes(size, '\0');
  OXBOW_RETURN_IF_ERROR(ReadInto(bytes.data(), record, offset, size));
  return bytes;
}

absl::StatusOr<LatentPieces> SegmentReader::Latents(const Entry& record, uint32_t first,
                                                    uint32_t count) const {
  const uint64_t part = kPartHeader + record.latent_bytes;
  const uint64_t size = count * part;
  const std::shared_ptr<char[]> raw(new char[size]);  // Not zeros: all of it is read.
  OXBOW_RETURN_IF_ERROR(ReadInto(raw.get(), record, first * part, size));
  LatentPieces latents{.pieces = {}, .memory = raw};
  std::string_view rest(raw.get(), size);
  for (uint32_t i = first; i < first + count; ++i) {
    const auto bytes = TakePart(rest, record.id, i, record.latent_bytes);
    if (!bytes.has_value()) return DamagedSegment(record, "a latent");
    latents.pieces.push_back(*bytes);
  }
  return latents;
}

absl::StatusOr<std::string> SegmentReader::Conditioning(const Entry& record) const {
  OXBOW_ASSIGN_OR_RETURN(const std::string raw,
                         Read(record, record.latent_count * (kPartHeader + record.latent_bytes),
                              kPartHeader + record.conditioning_bytes));
  std::string_view rest = raw;
  const auto bytes = TakePart(rest, record.id, kConditioningPart, record.conditioning_bytes);
  if (!bytes.has_value()) return DamagedSegment(record, "the conditioning");
  return std::string(*bytes);
}

absl::StatusOr<std::string> SegmentReader::Raw(const Entry& record) const {
  OXBOW_ASSIGN_OR_RETURN(std::string raw, Read(record, 0, SegmentBytes(record)));
  std::string_view rest = raw;
  for (uint32_t i = 0; i < record.latent_count; ++i) {
    if (!TakePart(rest, record.id, i, record.latent_bytes))
      return DamagedSegment(record, "a latent");
  }
  if (!TakePart(rest, record.id, kConditioningPart, record.conditioning_bytes)) {
    return DamagedSegment(record, "the conditioning");
  }
  return raw;
}

std::set<uint64_t> SegmentReader::List() const {
  std::set<uint64_t> segments;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(directory_, ignored)) {
    uint64_t number = 0;
    if (file.path().extension() != kSegmentExtension) continue;
    if (absl::SimpleAtoi(file.path().stem().string(), &number)) segments.insert(number);
  }
  return segments;
}

void SegmentReader::Delete(uint64_t segment) {
  {
    absl::MutexLock lock(&mutex_);
    files_.erase(segment);
  }
  // One that stays is deleted at the next start.
  environment_->DeleteFile(FileName(directory_, segment).string()).PermitUncheckedError();
}

absl::Status SegmentReader::LinkAll(const fs::path& directory) const {
  for (const uint64_t segment : List()) {
    const fs::path from = FileName(directory_, segment);
    const fs::path to = FileName(directory, segment);
    if (environment_->LinkFile(from.string(), to.string()).ok()) continue;
    OXBOW_RETURN_IF_ERROR(LinkOrCopy(from, to));
  }
  return SyncNames(directory, environment_);
}

uint64_t LatentPieces::bytes() const {
  uint64_t bytes = 0;
  for (const std::string_view piece : pieces) bytes += piece.size();
  return bytes;
}

LatentPieces LatentPieces::Part(uint64_t offset, uint64_t count) const {
  LatentPieces part{.pieces = {}, .memory = memory};
  for (std::string_view piece : pieces) {
    const uint64_t skipped = std::min<uint64_t>(offset, piece.size());
    offset -= skipped;
    piece = piece.substr(skipped, count);
    count -= piece.size();
    if (!piece.empty()) part.pieces.push_back(piece);
  }
  return part;
}

std::string LatentPieces::Joined() const {
  std::string joined;
  joined.reserve(bytes());
  for (const std::string_view piece : pieces) joined += piece;
  return joined;
}

Location SegmentUse::Append(EntryId entry, uint64_t bytes) {
  if (appended_ != 0 && segments_[appended_].written >= segment_bytes_) Seal();
  if (appended_ == 0) appended_ = next_++;
  const Location location{appended_, segments_[appended_].written};
  Take(entry, location, bytes);
  return location;
}

void SegmentUse::Take(EntryId entry, Location location, uint64_t bytes) {
  Segment& segment = segments_[location.segment];
  OXBOW_CHECK(segment.entries.insert(entry).second) << "twice in a segment: " << entry;
  segment.live += bytes;
  live_ += bytes;
  // Bytes in front of it that are of no entry are of one that is gone.
  const uint64_t end = std::max(segment.written, location.offset + bytes);
  written_ += end - std::exchange(segment.written, end);
}

void SegmentUse::Release(EntryId entry, Location location, uint64_t bytes) {
  Segment& segment = segments_.at(location.segment);
  OXBOW_CHECK(segment.entries.erase(entry) == 1) << "not in its segment: " << entry;
  segment.live -= bytes;
  live_ -= bytes;
  if (segment.entries.empty() && location.segment != appended_) Bury(location.segment);
}

void SegmentUse::Seal() {
  const uint64_t sealed = std::exchange(appended_, 0);
  if (sealed != 0 && segments_.at(sealed).entries.empty()) Bury(sealed);
}

void SegmentUse::Bury(uint64_t segment) {
  written_ -= segments_.at(segment).written;
  segments_.erase(segment);
  dead_.push_back(segment);
}

std::vector<uint64_t> SegmentUse::TakeDead() { return std::exchange(dead_, {}); }

std::vector<uint64_t> SegmentUse::WorthCopying() const {
  if (dead_bytes() <= live_ + segment_bytes_) return {};
  std::vector<std::pair<double, uint64_t>> by_share;
  for (const auto& [number, segment] : segments_) {
    if (number == appended_) continue;
    const double share = static_cast<double>(segment.live) / static_cast<double>(segment.written);
    by_share.emplace_back(share, number);
  }
  std::sort(by_share.begin(), by_share.end());
  std::vector<uint64_t> chosen;
  uint64_t stays = 0;
  for (const auto& [share, number] : by_share) {
    stays += segments_.at(number).live;
    if (share > .5 || (stays > segment_bytes_ && !chosen.empty())) break;
    chosen.push_back(number);
  }
  return chosen;
}

}  // namespace oxbow::buffer
