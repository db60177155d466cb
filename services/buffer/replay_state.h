// SPDX-License-Identifier: Apache-2.0
// Content of a replay store, in memory: its tables, the draws of uncommitted steps, the ids that
// were offered, the clock. Every change goes into a write batch at the same time.
//
// An entry that leaves its table while a step that is not committed has drawn it is *retired*: in
// no table, not counted, not drawn, still readable, until its last such step commits. Memory after
// a batch that could not be written is worthless: load it again. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "services/buffer/replay_records.h"
#include "services/buffer/segments.h"
#include "services/buffer/table.h"

namespace rocksdb {
class WriteBatch;
}  // namespace rocksdb

namespace oxbow::buffer {

class Database;

// The entries that go into segments. One alone costs an fsync more there; where many are written
// together, all of them cost one, and a value that is not in the log is written once.
struct SegmentSizes {
  uint64_t entry_min = uint64_t{64} << 10;  // Entries of at least so many bytes,
  uint64_t small_min = uint64_t{1} << 10;   // and of so many, where their batch
  uint64_t batch_min = uint64_t{1} << 20;   // has so many already.
  uint64_t file = uint64_t{64} << 20;       // A segment is full at so many.
};

// The records of entries in the index, and their bytes: small ones in the payload, large ones in
// segments.
class EntryParts {
 public:
  EntryParts(const Database& database, SegmentSizes sizes);

  // Notes an entry that was read.
  void Note(const Entry& entry);
  // Puts the bytes of an entry where they belong, and takes them out of it. Those of a large one
  // are then in TakeLarge.
  void Write(Entry& entry, rocksdb::WriteBatch& batch);
  void WriteRecord(const Entry& entry, rocksdb::WriteBatch& batch);
  void Erase(const Entry& entry, rocksdb::WriteBatch& batch);

  // Large entries since the last call, with their bytes: to be put into segments before the batch
  // is written.
  std::vector<Entry> TakeLarge() { return std::exchange(large_, {}); }
  SegmentUse& segments() { return segments_; }

 private:
  const Database& database_;
  const SegmentSizes sizes_;
  SegmentUse segments_;
  std::vector<Entry> large_;
};

// The ids that were offered, each with the last step in which it is known.
class OfferedIds {
 public:
  using Steps = std::map<LearnerStep, std::vector<EntryId>>;

  explicit OfferedIds(const Database& database) : database_(database) {}
  absl::Status Load();

  // Notes that the id was offered; ForgetBefore forgets it once `until` is past, and moves
  // forgotten() to `step`.
  void Remember(EntryId id, LearnerStep until, rocksdb::WriteBatch& batch);
  void ForgetBefore(LearnerStep step, rocksdb::WriteBatch& batch);
  // Forgets the ids of the oldest steps, each step as a whole, until at most `most` are left; not
  // those of `now` and later.
  void ForgetDownTo(uint64_t most, LearnerStep now, rocksdb::WriteBatch& batch);
  // Forgets those of `step` and later.
  void Rewind(LearnerStep step, rocksdb::WriteBatch& batch);

  bool contains(EntryId id) const { return ids_.contains(id); }
  uint64_t size() const { return ids_.size(); }
  const Steps& steps() const { return steps_; }
  LearnerStep forgotten() const { return forgotten_; }  // Ids of steps before it are not known.

 private:
  Steps::iterator Forget(Steps::iterator step, rocksdb::WriteBatch& batch);
  void SetForgotten(LearnerStep step, rocksdb::WriteBatch& batch);

  const Database& database_;
  LearnerStep forgotten_;
  absl::flat_hash_set<EntryId> ids_;
  Steps steps_;
};

class ReplayState {
 public:
  // Reads everything but headers and payload. kDataLoss on a record that is not one.
  // A table that has entries and is not among `tables` is there with a capacity of 0.
  static absl::StatusOr<std::unique_ptr<ReplayState>> Load(
      const Database& database, const replay::Decay& decay,
      const std::vector<replay::TablePolicy>& tables, SegmentSizes sizes = {});

  // Puts an entry into its table, and its bytes where EntryParts says. Requires that the table is
  // there, an id never offered, and what Table::Add requires.
  void Insert(Entry& entry, rocksdb::WriteBatch& batch);

  // Notes that the bytes of an entry were copied, unless it is gone or elsewhere by now.
  void Moved(EntryId id, Location from, Location to, rocksdb::WriteBatch& batch);

  // Deletes an entry of a table, or retires it. Requires that it is there.
  void Drop(EntryId id, rocksdb::WriteBatch& batch);

  // Holds the entries for `step`. Requires a step without draw.
  void RecordDraw(LearnerStep step, replay::Drawn draw, rocksdb::WriteBatch& batch);

  // Lets go of what steps up to `last` hold; deletes retired entries that no step holds any more.
  void ReleaseDraws(LearnerStep last, rocksdb::WriteBatch& batch);

  // Does nothing for an unknown id.
  void CountUse(EntryId id, LearnerStep step, rocksdb::WriteBatch& batch);

  // Notes a regeneration; does nothing for an entry that is in no table.
  void Rescore(const Rescored& rescored, rocksdb::WriteBatch& batch);

  void SetClock(ClockRecord clock, rocksdb::WriteBatch& batch);
  void SetOwner(Owner owner, rocksdb::WriteBatch& batch);

  // Whether an entry was born in `step` or later.
  bool LosesEntries(LearnerStep step) const;

  const ClockRecord& clock() const { return clock_; }
  const Owner& owner() const { return owner_; }
  EntryParts& parts() { return parts_; }
  OfferedIds& offered() { return offered_; }
  const std::map<std::string, Table>& tables() const { return tables_; }  // By name.
  const std::map<LearnerStep, replay::Drawn>& draws() const { return draws_; }
  uint64_t retired() const { return retired_.size(); }

  // The record of an entry of a table, or of a retired one; null if it is neither. Valid until the
  // next change.
  const Entry* Find(EntryId id) const;

 private:
  ReplayState(const Database& database, SegmentSizes sizes);
  absl::Status LoadRecords();
  absl::Status LoadBest();
  absl::Status LoadDraws();
  absl::Status LoadQueues(const replay::Decay& decay);
  Table* Holder(EntryId id);

  const Database& database_;  // Names the column families; outlives this.
  EntryParts parts_;
  OfferedIds offered_;
  ClockRecord clock_;
  Owner owner_;
  std::map<std::string, Table> tables_;
  uint64_t next_place_ = 0;  // For the next arrival in any queue.
  std::map<EntryId, Entry> retired_;
  std::map<LearnerStep, replay::Drawn> draws_;
  absl::flat_hash_map<EntryId, uint32_t> holds_;  // Draws that hold an entry.
};

}  // namespace oxbow::buffer
