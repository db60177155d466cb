// What a replay store holds, in memory: the best table and the queues. Every change goes into a
// write batch at the same time.
//
// Live entries are in the index; those of queues are not called live. A live entry that is dropped
// while a step that is not committed has drawn it is *retired*: not live, not counted, not drawn,
// still readable, until its last such step commits. Memory after a batch that could not be written
// is worthless: load it again. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "core/replay/replay_index.h"
#include "services/buffer/entry_queue.h"
#include "services/buffer/replay_records.h"

namespace rocksdb {
class WriteBatch;
}  // namespace rocksdb

namespace oxbow::buffer {

class Database;

// The parts of a new entry, opaque but for the facts.
struct NewEntry {
  replay::EntryFacts facts;
  std::string table;  // Empty: best.
  std::string header;
  std::string conditioning;
  uint32_t latent_count = 0;  // 0 in queues alone.
  std::string latents;        // latent_count of equal size.
  std::string invalid;  // Not empty: why it cannot be stored; the other fields but the id count for
                        // nothing.
};

class ReplayState {
 public:
  // Reads everything but headers and payload. kDataLoss on a record that is not one.
  // A queue that is not declared is there as long as it has entries.
  static absl::StatusOr<std::unique_ptr<ReplayState>> Load(
      const Database& database, const replay::Decay& decay,
      const std::vector<replay::TablePolicy>& queues);

  // Requires a prompt without live entry and an id never offered.
  void Insert(const NewEntry& entry, rocksdb::WriteBatch& batch);

  // Puts an entry at the end of a queue. Requires that the queue is declared and an id never
  // offered.
  void Append(const NewEntry& entry, rocksdb::WriteBatch& batch);

  // Deletes a live entry, or retires it. Requires that it is live.
  void Drop(EntryId id, rocksdb::WriteBatch& batch);

  // Deletes an entry of a queue. Requires that it is there.
  void DropQueued(EntryId id, rocksdb::WriteBatch& batch);

  // Notes that the id was offered; forgotten once `until` is further back than Forget allows.
  void Remember(EntryId id, LearnerStep until, rocksdb::WriteBatch& batch);
  void ForgetBefore(LearnerStep step, rocksdb::WriteBatch& batch);
  bool WasOffered(EntryId id) const;

  // Holds the entries for `step`. Requires a step without draw.
  void RecordDraw(LearnerStep step, DrawRecord draw, rocksdb::WriteBatch& batch);

  // Lets go of what steps up to `last` hold; retired entries that nobody holds are deleted.
  void ReleaseDraws(LearnerStep last, rocksdb::WriteBatch& batch);

  // Of a live, retired or queued entry; does nothing for others.
  void CountUse(EntryId id, LearnerStep step, rocksdb::WriteBatch& batch);

  void SetClock(ClockRecord clock, rocksdb::WriteBatch& batch);

  const ClockRecord& clock() const { return clock_; }
  const replay::ReplayIndex& index() const { return index_; }
  const std::map<LearnerStep, DrawRecord>& draws() const { return draws_; }
  const std::map<EntryId, EntryRecord>& retired() const { return retired_; }
  uint64_t remembered() const { return offered_.size(); }
  uint64_t live_bytes() const { return live_bytes_; }
  const std::map<std::string, EntryQueue>& queues() const { return queues_; }  // By name.
  // The queue that holds the entry; null if none does.
  const EntryQueue* QueueOf(EntryId id) const;

  // Live, retired or queued; nothing if it is none of them.
  std::optional<EntryRecord> Find(EntryId id) const;

 private:
  ReplayState(const Database& database, const replay::Decay& decay);
  absl::Status LoadEntries();
  absl::Status LoadDraws();
  absl::Status LoadOffered();
  absl::Status LoadQueues();
  EntryExtent Write(const NewEntry& entry, rocksdb::WriteBatch& batch);
  void Erase(const EntryRecord& record, rocksdb::WriteBatch& batch);

  const Database& database_;  // Names the column families; outlives this.
  ClockRecord clock_;
  replay::ReplayIndex index_;
  absl::flat_hash_map<EntryId, EntryExtent> live_extents_;
  uint64_t live_bytes_ = 0;
  std::map<EntryId, EntryRecord> retired_;
  std::map<LearnerStep, DrawRecord> draws_;
  std::map<std::string, EntryQueue> queues_;
  uint64_t next_place_ = 0;                       // Of all queues.
  absl::flat_hash_map<EntryId, uint32_t> holds_;  // Draws that hold an entry.
  absl::flat_hash_set<EntryId> offered_;
  std::map<LearnerStep, std::vector<EntryId>> offered_until_;
};

}  // namespace oxbow::buffer
