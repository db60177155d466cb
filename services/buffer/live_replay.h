// SPDX-License-Identifier: Apache-2.0
// The live database of a replay store and what memory knows of it: opened, read, changed and
// recovered after a failed write.
//
// The caller holds the store's lock (replay_store.h). "Settled": the method is called only while no
// offers are being written. Memory is ahead of the disk between a change and Commit; where a Commit
// fails memory goes back to what the disk says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/buffer/database.h"
#include "services/buffer/replay_directory.h"
#include "services/buffer/replay_state.h"
#include "services/buffer/store_reports.h"

namespace oxbow::buffer {

class LiveReplay {
 public:
  // As ReplayStore's.
  static absl::StatusOr<std::unique_ptr<LiveReplay>> Open(ReplayOptions options);
  static absl::StatusOr<std::unique_ptr<LiveReplay>> OpenForReading(
      const std::filesystem::path& directory, const replay::Decay& decay);

  const ReplayOptions& options() const { return options_; }
  const ReplayDirectory& directory() const { return *directory_; }
  Database& database() { return *database_; }
  ReplayState& state() { return *state_; }
  // Whether a change would not begin with a recovery.
  bool sound() const { return state_ != nullptr && !write_failed_; }
  // How often memory was read from the disk: what was decided before is void.
  uint64_t loads() const { return loads_; }
  // Entries that were decided and are not durable: no reader sees them.
  absl::flat_hash_set<EntryId>& undurable() { return undurable_; }

  // OK if the store may change; recovers first where a write has failed.
  absl::Status CanWrite();
  // Settled. Writes the batch, which `state` already shows, and deletes segments without entries.
  absl::Status Commit(rocksdb::WriteBatch& batch);
  // A write of the caller's own has failed: memory is what the disk says.
  void NoteFailedWrite();

  TableState& counts(const std::string& table) { return counts_[table]; }

  // kUnavailable while the database cannot be opened.
  absl::Status CheckUsable() const;
  // Settled. Deletes them; if the disk is full, another time.
  void EvictDamaged(const std::vector<EntryId>& damaged);

  // Settled. Copies the database to `path`: links to files that nothing is appended to any more.
  absl::Status CopyTo(const std::filesystem::path& path);
  // Settled. Opens the database at `live`, makes `change` in it, makes it the one of the next
  // start, uses it and deletes the others. Until the pointer has moved the old one is untouched.
  using Change = std::function<absl::Status(ReplayState&, rocksdb::WriteBatch&)>;
  absl::Status SwitchTo(const std::filesystem::path& live, bool create, const Change& change);

  StoreInfo Look() const;
  // Keeps a look for LastLook, before a write that may take long.
  void LookFirst() const ABSL_LOCKS_EXCLUDED(looked_mutex_);
  // Needs no lock.
  StoreInfo LastLook() const ABSL_LOCKS_EXCLUDED(looked_mutex_);

 private:
  LiveReplay(ReplayOptions options, std::unique_ptr<ReplayDirectory> directory)
      : options_(std::move(options)), directory_(std::move(directory)) {}
  absl::Status OpenLive(bool compacts = true);
  absl::Status Load();
  void Take(std::unique_ptr<ReplayState> state);
  absl::Status Recover();
  absl::Status DropDamaged();

  const ReplayOptions options_;
  const std::unique_ptr<ReplayDirectory> directory_;
  std::filesystem::path path_;
  std::unique_ptr<Database> database_;  // Null while it cannot be opened.
  std::unique_ptr<ReplayState> state_;  // Null when database_ is.
  bool write_failed_ = false;           // Recover before the next change.
  uint64_t loads_ = 0;
  absl::flat_hash_set<EntryId> undurable_;
  uint64_t damaged_ = 0;                      // Since the start.
  std::map<std::string, TableState> counts_;  // By table; counts only.

  // The answer of Info while a write has the store.
  mutable absl::Mutex looked_mutex_;
  mutable StoreInfo looked_ ABSL_GUARDED_BY(looked_mutex_);
};

// OK if the caller may change the store, which recovers first where a write has failed; the
// caller's epoch and run become the store's.
absl::Status CheckIn(LiveReplay& live, const Caller& caller, rocksdb::WriteBatch& batch);

// Drops an entry for room or age, counted.
void Evict(LiveReplay& live, const Table& table, EntryId id, rocksdb::WriteBatch& batch);

// kNotFound unless a table or a step has it durably.
absl::StatusOr<const Entry*> FindRecord(LiveReplay& live, EntryId id);

// With its priority, header and, if wanted, conditioning. kDataLoss if it is damaged.
absl::StatusOr<Entry> ReadEntry(LiveReplay& live, Entry record, bool conditioning);

// Settled. Deletes the entries past the tables' capacities.
absl::Status TrimToCapacity(LiveReplay& live);

// kNotFound for a table that is declared no more: it has no capacity.
absl::StatusOr<const Table*> Declared(const ReplayState& state, const std::string& table);

}  // namespace oxbow::buffer
