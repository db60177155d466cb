// SPDX-License-Identifier: Apache-2.0
// The large entries of a replay store: files that are only appended to, beside the database whose
// records say where in them an entry lies. A value is written once.
//
//   000012.segment   the parts of entries, back to back: latents in order, then the conditioning
//   part             checksum: u64 | entry: u64 | part: u32 | size: u32 | bytes   (big-endian)
//
// The checksum: first half of XXH3-128 of the next 16 bytes and the XXH3-128 of the part's bytes.
// An entry is synced before the record that names it is written: nothing names what a crash leaves
// at a segment's end. None is appended to after a restart or a checkpoint: hard links are copies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/buffer/entry.h"

namespace rocksdb {
class Env;
class RandomAccessFile;
class WritableFile;
}  // namespace rocksdb

namespace oxbow::buffer {

inline constexpr char kSegmentExtension[] = ".segment";

// Bytes that an entry of these sizes takes in a segment.
uint64_t SegmentBytes(const Entry& record);

// Writes segments: one thread at a time. Small parts are gathered, so that a write to the file has
// many of them. A file that could not be written or synced is not used any more: the caller goes on
// in another segment.
class SegmentWriter {
 public:
  SegmentWriter(std::filesystem::path directory, rocksdb::Env* environment);
  ~SegmentWriter();

  // Puts an entry, with its bytes, where `entry.location` says: at the end of what was put into
  // this segment before. Syncs the segment before, if there was one.
  absl::Status Put(const Entry& entry);
  // The same from bytes as they lie in a segment.
  absl::Status PutRaw(Location location, std::string_view bytes);

  // All that was put survives power loss when this returns OK.
  absl::Status Sync();

 private:
  absl::Status Append(std::string_view bytes);
  absl::Status WriteGathered();

  const std::filesystem::path directory_;
  rocksdb::Env* const environment_;
  std::unique_ptr<rocksdb::WritableFile> file_;
  uint64_t number_ = 0;
  uint64_t written_ = 0;  // With what is gathered.
  std::string gathered_;  // Not in the file yet.
  bool dirty_ = false;
};

// Latents as they were read: pieces of memory, back to back, which can be sent without a copy.
struct LatentPieces {
  std::vector<std::string_view> pieces;
  std::shared_ptr<const void> memory;  // Holds the pieces. Those who still send them share it.

  uint64_t bytes() const;
  // At most `count` bytes from `offset` on, in the same memory.
  LatentPieces Part(uint64_t offset, uint64_t count) const;
  std::string Joined() const;
};

// Reads segments. Thread-safe.
class SegmentReader {
 public:
  SegmentReader(std::filesystem::path directory, rocksdb::Env* environment);
  ~SegmentReader();

  // kDataLoss if a part is not there or is damaged.
  absl::StatusOr<LatentPieces> Latents(const Entry& record, uint32_t first, uint32_t count) const;
  absl::StatusOr<std::string> Conditioning(const Entry& record) const;
  // All of an entry, as it lies there, every part checked.
  absl::StatusOr<std::string> Raw(const Entry& record) const;

  // Numbers of the files that are there.
  std::set<uint64_t> List() const;
  void Delete(uint64_t segment);
  // Makes hard links of all files in another directory, or synced copies where there are none.
  absl::Status LinkAll(const std::filesystem::path& directory) const;

 private:
  absl::StatusOr<std::shared_ptr<rocksdb::RandomAccessFile>> FileOf(uint64_t segment) const;
  absl::Status ReadInto(char* bytes, const Entry& record, uint64_t offset, uint64_t size) const;
  absl::StatusOr<std::string> Read(const Entry& record, uint64_t offset, uint64_t size) const;

  const std::filesystem::path directory_;
  rocksdb::Env* const environment_;
  mutable absl::Mutex mutex_;
  mutable std::map<uint64_t, std::shared_ptr<rocksdb::RandomAccessFile>> files_
      ABSL_GUARDED_BY(mutex_);  // Open ones.
};

// The entries that lie in each segment, and where the next one goes. Pure bookkeeping: it follows
// from the records of the entries.
class SegmentUse {
 public:
  // `next` is the number of the next segment; one is full at `segment_bytes`.
  SegmentUse(uint64_t next, uint64_t segment_bytes) : next_(next), segment_bytes_(segment_bytes) {}

  // The place of an entry of so many bytes: behind that of the one before.
  Location Append(EntryId entry, uint64_t bytes);

  // Notes an entry that lies there already.
  void Take(EntryId entry, Location location, uint64_t bytes);

  // Notes that an entry is gone. A segment without entries is dead once nothing is appended to it.
  void Release(EntryId entry, Location location, uint64_t bytes);

  // Appends no more to the present segment.
  void Seal();

  // Segments that died since the last call. Their files may go when the records that named them
  // are gone for good.
  std::vector<uint64_t> TakeDead();

  // Once more than half of all bytes are of entries that are gone: the segments with the largest
  // share of them, up to one segment's worth of entries that stay. Else none.
  std::vector<uint64_t> WorthCopying() const;

  // A number for a segment that a copy goes into.
  uint64_t NextNumber() { return next_++; }

  const absl::flat_hash_set<EntryId>& EntriesOf(uint64_t segment) const {
    return segments_.at(segment).entries;
  }
  bool Holds(uint64_t segment) const { return segments_.contains(segment); }
  uint64_t bytes() const { return written_; }  // Sum over segments that are not dead.
  uint64_t dead_bytes() const { return written_ - live_; }

 private:
  struct Segment {
    uint64_t written = 0;
    uint64_t live = 0;
    absl::flat_hash_set<EntryId> entries;
  };
  void Bury(uint64_t segment);

  uint64_t next_;
  const uint64_t segment_bytes_;
  uint64_t appended_ = 0;  // The segment that the next entry goes into; 0: a new one.
  std::map<uint64_t, Segment> segments_;
  std::vector<uint64_t> dead_;
  uint64_t written_ = 0;
  uint64_t live_ = 0;
};

// Syncs a directory: names of new files in it survive power loss.
absl::Status SyncNames(const std::filesystem::path& directory, rocksdb::Env* environment);

}  // namespace oxbow::buffer
