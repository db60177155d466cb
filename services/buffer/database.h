// SPDX-License-Identifier: Apache-2.0
// One RocksDB of the replay store: an index family, a payload family for small entries, and the
// segments of large ones in the same directory (segments.h).
//
// Sized to stay small: 16 MiB of cache, 16 MiB of write buffers, 64 MiB of log. A value is checked
// against its checksum when read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/buffer/entry.h"
#include "services/buffer/segments.h"

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class Env;
class Statistics;
class Status;
class WriteBatch;
}  // namespace rocksdb

namespace oxbow::buffer {

// The failure and its place, as one of this store's errors.
absl::Status FromRocks(const rocksdb::Status& status, const std::filesystem::path& path);

// kDataLoss if a log (WAL) in the database's directory ends in a record with a rotten length. Other
// damage of a log is for RocksDB to find.
//
// A power loss may cut the record that was being written. RocksDB drops such a record, which nobody
// was told of: it takes a record that is longer than the rest of its file for one. A record that
// was synced and of which the length has rotted looks the same, and would go in silence, with all
// behind it in its block. It can be told by its checksum, which fits a shorter length.
//
//   log     blocks of 32 KiB, the last one shorter; a record lies in one block
//   record  masked CRC-32C of type and bytes: u32 | length: u16 | type: u8 | bytes  (little-endian)
absl::Status CheckLogTails(const std::filesystem::path& database);

class Database {
 public:
  // With `create` makes a database that is absent or unfinished. Without `compacts` nothing is
  // compacted until CompactAll. kDataLoss if it is damaged or incomplete, kResourceExhausted if the
  // disk is full.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::filesystem::path& path,
                                                        bool create, rocksdb::Env* environment,
                                                        bool compacts = true);
  // Opens a database without writing a byte: replays its log in memory. kDataLoss if it is damaged
  // or no database. Write, Resume and CopyTo fail.
  static absl::StatusOr<std::unique_ptr<Database>> OpenReadOnly(const std::filesystem::path& path);
  ~Database();

  // Checks that there is room to open a database again: writes, syncs and deletes a file of 1 MiB
  // beside `path`.
  static absl::Status ProbeRoom(const std::filesystem::path& path, rocksdb::Env* environment);

  // Writes all of the batch or nothing. With `sync` it survives power loss when this returns OK.
  absl::Status Write(rocksdb::WriteBatch& batch, bool sync);

  // After a failed write RocksDB refuses others; this asks it to go on. Needs room on the disk.
  absl::Status Resume();

  // Writes all of the payload to new files, without what was deleted, and lets compaction go on by
  // itself.
  absl::Status CompactAll();

  // kNotFound, or kDataLoss on a wrong checksum.
  absl::StatusOr<std::string> Get(rocksdb::ColumnFamilyHandle* family,
                                  const std::string& key) const;

  // Parts of an entry, wherever they lie. One that is missing is damage too: its record says that
  // it is there.
  absl::StatusOr<std::string> Header(EntryId entry) const;
  absl::StatusOr<std::string> Conditioning(const Entry& record) const;
  // Latents [first, first + count).
  absl::StatusOr<LatentPieces> Pieces(const Entry& record, uint32_t first, uint32_t count) const;
  // The same in one string.
  absl::StatusOr<std::string> Latents(const Entry& record, uint32_t first, uint32_t count) const;

  SegmentReader& segments() const { return *segments_; }
  std::unique_ptr<SegmentWriter> NewSegmentWriter() const {
    return std::make_unique<SegmentWriter>(path_, environment_);
  }

  // Visits index keys that start with `letter`, in order, until `visit` fails.
  absl::Status ForEach(char letter,
                       const std::function<absl::Status(const std::string& key,
                                                        const std::string& value)>& visit) const;

  // The first index entry behind `key` (key, value) that starts with `letter`; nothing behind the
  // last one.
  absl::StatusOr<std::optional<std::pair<std::string, std::string>>> After(
      char letter, const std::string& key) const;

  // Writes a copy made of hard links to `path`, which must not exist; it appears whole or not at
  // all. Nothing is appended to the present segments any more.
  absl::Status CopyTo(const std::filesystem::path& path);

  uint64_t disk_bytes() const;  // Without the segments.

  // How far compaction is behind what is written.
  struct Pressure {
    bool writes_stopped = false;
    uint64_t compaction_pending_bytes = 0;
    double stall_seconds = 0;  // That writes were held back, since the database was opened.
  };
  Pressure pressure() const;

  rocksdb::ColumnFamilyHandle* index() const { return index_; }
  rocksdb::ColumnFamilyHandle* payload() const { return payload_; }

 private:
  Database(std::filesystem::path path, rocksdb::Env* environment,
           std::unique_ptr<rocksdb::Env> unlocked, std::shared_ptr<rocksdb::Statistics> statistics,
           rocksdb::DB* db, rocksdb::ColumnFamilyHandle* index,
           rocksdb::ColumnFamilyHandle* payload);
  absl::StatusOr<std::string> Part(EntryId entry, rocksdb::ColumnFamilyHandle* family,
                                   const std::string& key) const;

  const std::filesystem::path path_;
  rocksdb::Env* const environment_;
  const std::unique_ptr<rocksdb::Env> unlocked_;  // That of the database, which ends before it.
  const std::unique_ptr<SegmentReader> segments_;
  const std::shared_ptr<rocksdb::Statistics> statistics_;  // Shared with the database.
  const std::unique_ptr<rocksdb::DB> db_;
  rocksdb::ColumnFamilyHandle* const index_;  // Freed before the database.
  rocksdb::ColumnFamilyHandle* const payload_;
};

}  // namespace oxbow::buffer
