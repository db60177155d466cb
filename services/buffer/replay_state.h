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

class ReplayState {
 public:
  // Reads everything but headers and payload. kDataLoss on a record that is not one.
  // A table that has entries and is not among `tables` is there with a capacity of 0.
  static absl::StatusOr<std::unique_ptr<ReplayState>> Load(
      const Database& database, const replay::Decay& decay,
      const std::vector<replay::TablePolicy>& tables, SegmentSizes sizes = {});

  // Puts an entry into its table and takes its bytes out of it. Those of a large one are then in
  // TakeLarge. Requires that the table is there, an id never offered, and what Table::Add requires.
  void Insert(Entry& entry, rocksdb::WriteBatch& batch);

  // Large entries inserted since the last call, with their bytes: to be put into segments before
  // the batch is written.
  std::vector<Entry> TakeLarge() { return std::exchange(large_, {}); }
  SegmentUse& segments() { return segments_; }
  const SegmentUse& segments() const { return segments_; }

  // Notes that the bytes of an entry were copied, unless it is gone or elsewhere by now.
  void Moved(EntryId id, Location from, Location to, rocksdb::WriteBatch& batch);

  // Deletes an entry of a table, or retires it. Requires that it is there.
  void Drop(EntryId id, rocksdb::WriteBatch& batch);

  // Notes that the id was offered; ForgetBefore forgets it once `until` is past, and moves
  // forgotten() to `step`.
  void Remember(EntryId id, LearnerStep until, rocksdb::WriteBatch& batch);
  void ForgetBefore(LearnerStep step, rocksdb::WriteBatch& batch);

  // Forgets the ids of the oldest steps, each step as a whole, until at most `most` are left; not
  // those of `now` and later.
  void ForgetDownTo(uint64_t most, LearnerStep now, rocksdb::WriteBatch& batch);
  bool WasOffered(EntryId id) const;

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

  // Goes back to the moment after `step` committed steps as far as that is possible: what was born
  // or offered in `step` or later goes, and so do all draws. What an entry that goes had replaced
  // does not come back, and uses stay counted.
  void Rewind(LearnerStep step, rocksdb::WriteBatch& batch);
  // Whether Rewind would delete an entry.
  bool LosesEntries(LearnerStep step) const;

  const ClockRecord& clock() const { return clock_; }
  const Owner& owner() const { return owner_; }
  LearnerStep forgotten() const { return forgotten_; }  // Ids of steps before it are not known.
  const std::map<std::string, Table>& tables() const { return tables_; }  // By name.
  const std::map<LearnerStep, replay::Drawn>& draws() const { return draws_; }
  const std::map<LearnerStep, std::vector<EntryId>>& offered() const { return offered_until_; }
  uint64_t retired() const { return retired_.size(); }
  uint64_t remembered() const { return offered_.size(); }

  // The record of an entry of a table, or of a retired one; null if it is neither. Valid until the
  // next change.
  const Entry* Find(EntryId id) const;

 private:
  ReplayState(const Database& database, SegmentSizes sizes);
  absl::Status LoadRecords();
  absl::Status LoadBest();
  absl::Status LoadDraws();
  absl::Status LoadOffered();
  absl::Status LoadQueues(const replay::Decay& decay);
  Table* Holder(EntryId id);
  void WriteRecord(const Entry& entry, rocksdb::WriteBatch& batch);
  void WriteParts(Entry& entry, rocksdb::WriteBatch& batch);
  void Erase(const Entry& entry, rocksdb::WriteBatch& batch);
  using OfferedSteps = std::map<LearnerStep, std::vector<EntryId>>;
  void SetForgotten(LearnerStep step, rocksdb::WriteBatch& batch);
  OfferedSteps::iterator Forget(OfferedSteps::iterator step, rocksdb::WriteBatch& batch);

  void NoteSegment(const Entry& entry);

  const Database& database_;  // Names the column families; outlives this.
  const SegmentSizes sizes_;
  SegmentUse segments_;
  std::vector<Entry> large_;
  ClockRecord clock_;
  Owner owner_;
  LearnerStep forgotten_;
  std::map<std::string, Table> tables_;
  uint64_t next_place_ = 0;  // For the next arrival in any queue.
  std::map<EntryId, Entry> retired_;
  std::map<LearnerStep, replay::Drawn> draws_;
  absl::flat_hash_map<EntryId, uint32_t> holds_;  // Draws that hold an entry.
  absl::flat_hash_set<EntryId> offered_;
  OfferedSteps offered_until_;
};

}  // namespace oxbow::buffer
