// SPDX-License-Identifier: Apache-2.0
// The replay store: tables of entries on disk, under the rules of core/replay.
//
//   Offer     entries of one call are decided one after another and become durable together
//   Draw      what a step gets from a table. A draw from `best` is fixed: the same step gets the
//             same entries, also after a restart, and they stay readable until it commits
//   Advance   a step committed: ages, uses, and lets go of what the step had drawn
//   Restore   goes back to a checkpoint, at any moment either wholly there or wholly not; without a
//             checkpoint it drops what was born too late
//
// The tables share epochs, ids, clock and checkpoints. `best` keeps the best trajectory of each
// prompt; the others are queues (core/replay/table_policy.h). A table that is declared no more is
// emptied at the start.
//
// Every change is one atomic write that is fsynced before the call returns, so it survives kill -9
// and power loss. Offers that come while others are being written are decided at once and written
// together, with one fsync (replay_store_groups.cc); every other change waits for those before it.
// An entry can be read once its Offer is durable. Where a call fails nothing of it is there, and
// the store goes on (a full disk: when there is room again). Who may change the store, and the
// errors of those who may not: ownership.h.
//
// Ids are remembered for `remembered_steps` after their offer or birth, whichever is later, and for
// fewer steps where they are more than `remembered_max`; an entry born before the steps whose ids
// are known is refused. So an id never enters twice, and the memory of them is bounded.
//
// An entry of which a part is damaged is left out of what Draw and List answer, and any reader of
// it makes it leave. RocksDB stops writing when a compaction meets such a part: then all entries
// are read, the damaged ones leave, and writing goes on.
//
// Files: replay_directory.h; the content of the database: replay_records.h. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "services/buffer/latent_pieces.h"
#include "services/buffer/replay_state.h"
#include "services/buffer/segments.h"
#include "services/buffer/verification.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace oxbow::buffer {

class ReplayDirectory;

enum class Outcome { kInserted, kReplaced, kRejectedLower, kDuplicate, kRejectedInvalid };
inline constexpr size_t kOutcomes = 5;

struct OfferResult {
  EntryId entry;
  Outcome outcome = Outcome::kRejectedInvalid;
  EntryId replaced;   // Only with kReplaced.
  std::string error;  // Only with kRejectedInvalid.
};

struct OfferReport {
  std::vector<OfferResult> results;  // One per entry, in order.
  // Write and fsync of all that was written together, told with the first of them; else zero.
  absl::Duration sync_time;
  uint64_t together = 1;  // Offers that were written with it, and it.
};

struct DrawReport {
  std::vector<Entry> entries;  // Without conditioning.
  uint64_t eligible = 0;
};

struct AdvanceReport {
  std::vector<uint64_t> used_ages;  // Ages of the used entries, in steps. Empty for a step it knew.
  uint64_t evicted = 0;             // From best: as the caller asked, and what failed too often.
  uint64_t failed = 0;              // Regenerations that failed.
};

struct TableState {
  replay::TablePolicy policy;
  uint64_t entries = 0;
  uint64_t bytes = 0;
  // Since the start of the process:
  uint64_t evicted = 0;                      // For room or age; best replaces instead.
  std::array<uint64_t, kOutcomes> offers{};  // By outcome.
};

// Numbers that are not of the whole store or in `tables` are of best.
struct StoreInfo {
  uint64_t entries = 0;
  uint64_t capacity = 0;
  uint64_t bytes = 0;
  uint64_t retired = 0;
  uint64_t disk_bytes = 0;      // Files; more than `bytes` until compaction has caught up.
  bool writes_stopped = false;  // Until compaction has caught up.
  uint64_t compaction_pending_bytes = 0;
  double stall_seconds =
      0;  // Writes held back since the database was opened; Restore opens another.
  uint64_t disk_free_bytes = 0;
  LearnerStep step;
  Epoch epoch;
  Owner owner;
  uint64_t damaged = 0;  // Entries that left because they were damaged, since the start.
  double reward_mean = 0;
  double priority_min = 0;
  double priority_mean = 0;
  double priority_p10 = 0;  // A tenth of the entries is at or below it; p50 half, p90 nine tenths.
  double priority_p50 = 0;
  double priority_p90 = 0;
  double age_mean_steps = 0;
  double age_max_steps = 0;
  double uses_mean = 0;
  std::array<uint64_t, kOutcomes> offers{};  // By outcome, since the start of the process.
  std::vector<TableState> tables;            // best first.
};

class ReplayStore {
 public:
  struct Options {
    std::filesystem::path directory;
    std::vector<replay::TablePolicy> tables = {replay::BestTable(/*capacity=*/512)};  // Best first.
    replay::Decay decay;
    uint64_t remembered_steps = 1024;
    uint64_t open_draws_max = 64;           // Steps that may hold entries at a time.
    uint64_t remembered_max = 1'000'000;    // Ids.
    rocksdb::Env* environment = nullptr;    // Tests inject faults here. Not owned.
    const Clock* clock = &Clock::Steady();  // Not owned.
    SegmentSizes segments;                  // The sizes of large entries, and of their files.
    bool read_only = false;                 // Set by OpenForReading.
  };

  // Opens the store, creating it if absent; deletes the entries past the tables' capacities.
  // kInvalidArgument for options out of range, kDataLoss if the store is damaged, kUnavailable if
  // another process holds it.
  static absl::StatusOr<std::unique_ptr<ReplayStore>> Open(Options options);

  // Looks into a store that no process serves, writing nothing: every change is
  // kFailedPrecondition. Tables are best and those that have entries; a capacity is what is there.
  // kNotFound if there is no store, kUnavailable while a process holds it, kDataLoss as above.
  static absl::StatusOr<std::unique_ptr<ReplayStore>> OpenForReading(
      const std::filesystem::path& directory, const replay::Decay& decay);
  ~ReplayStore();

  // kOutOfRange for more entries in one step than ids can be remembered.
  absl::StatusOr<OfferReport> Offer(const Caller& caller, std::vector<Entry> entries)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The same without waiting: decides now, and calls `done` once, from any thread, when the offer
  // is durable or has failed. Offers are durable in the order of the calls. `done` may not call the
  // store.
  using Offered = std::function<void(absl::StatusOr<OfferReport>)>;
  void OfferAsync(const Caller& caller, std::vector<Entry> entries, Offered done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Up to `count` entries of a table that were born before `step`, as its policy says. kNotFound if
  // the table is not declared, kOutOfRange if the step was committed before, kResourceExhausted if
  // too many steps hold entries.
  absl::StatusOr<DrawReport> Draw(const Caller& caller, LearnerStep step, uint64_t count,
                                  uint64_t seed, const std::string& table = replay::kBestTable)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Counts `used`, moves the clock to step + 1, lets go of what steps up to `step` had drawn,
  // deletes `evict`, what has failed `failures_max` times in a row with `rescored` (0: nothing),
  // and what is too old for its table. Unknown ids are ignored. kOutOfRange if a later step was
  // committed before, kInvalidArgument for a reward that is not finite.
  absl::StatusOr<AdvanceReport> Advance(const Caller& caller, LearnerStep step,
                                        std::span<const EntryId> used,
                                        std::span<const EntryId> evict,
                                        std::span<const Rescored> rescored = {},
                                        uint64_t failures_max = 0) ABSL_LOCKS_EXCLUDED(mutex_);

  // An entry, with its conditioning if wanted. kNotFound unless a table has it or a step holds it,
  // kDataLoss if it is damaged: then it leaves its table.
  absl::StatusOr<Entry> Find(EntryId entry, bool conditioning = false) ABSL_LOCKS_EXCLUDED(mutex_);

  // Latents [first, first + count) of an entry. kOutOfRange past its end; else as Find.
  absl::StatusOr<LatentPieces> ReadPieces(EntryId entry, uint32_t first, uint32_t count)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The same in one string.
  absl::StatusOr<std::string> ReadLatents(EntryId entry, uint32_t first, uint32_t count)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Keeps the content under `name`, in place of an older one of that name, and deletes all but the
  // youngest `keep` names (0: keeps all). Then deletes what Restore set aside.
  absl::Status Checkpoint(const Caller& caller, const std::string& name, uint64_t keep)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Goes back to a checkpoint; kNotFound if the caller's run has none of this name. With an empty
  // name the content stays, without what was born in `wanted.step` or later; what leaves so is
  // first copied aside. `wanted` may take the store from its owner: then it becomes empty, unless
  // the owner is the caller's own run and shard.
  // A second start of the same run and epoch is kFailedPrecondition, as long as this process lives.
  absl::Status Restore(const Caller& caller, const std::string& name, const RestoreFor& wanted = {})
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Never waits for a write: while one has the store, what was true when it began.
  StoreInfo Info() const ABSL_LOCKS_EXCLUDED(mutex_, looked_mutex_);

  // The entries of a table that `choose` takes, in its order, without conditioning. Damaged ones
  // and those that are not durable yet cannot be taken: a limit does not count them. kNotFound if
  // the table is not declared.
  using Choose = std::function<void(const Table& table, const Table::Usable& take)>;
  absl::StatusOr<std::vector<Entry>> List(const Choose& choose, const std::string& table)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Up to `limit` entries behind `after` in the table's order (Table::After).
  absl::StatusOr<std::vector<Entry>> List(uint64_t limit, EntryId after,
                                          const std::string& table = replay::kBestTable)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    return List(
        [&](const Table& listed, const Table::Usable& take) { listed.After(after, limit, take); },
        table);
  }

  // Checks the next stored entries of all tables (verification.h).
  absl::StatusOr<VerifiedPage> Verify(const std::string& cursor, uint64_t limit)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  ReplayStore(Options options, std::unique_ptr<ReplayDirectory> directory);

  // A change of a database that is about to become the live one.
  using Change = std::function<absl::Status(ReplayState&, rocksdb::WriteBatch&)>;

  absl::Status OpenLive(bool compacts = true) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Recover() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status DropDamaged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CanWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckIn(const Caller& caller, rocksdb::WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Begin(const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Commit(rocksdb::WriteBatch& batch, bool sync) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(std::unique_ptr<ReplayState> state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CopyTo(const std::filesystem::path& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Offers that were decided and are not durable yet.
  struct Group;
  absl::Status Enter(const Caller& caller, std::vector<Entry>& entries, Offered& done, bool waits)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteToDisk(Group& group) ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteGroup() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteGroups() ABSL_LOCKS_EXCLUDED(mutex_);
  void Settled(Group& group, absl::Duration took) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Tell(Group& group);
  void TellCallers() ABSL_LOCKS_EXCLUDED(mutex_);
  void CompactSegments() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  struct Copied;
  absl::StatusOr<Copied> CopyEntries(const std::vector<Entry>& records, uint64_t segment)
      ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status RestoreTo(const Caller& caller, const std::string& name, const RestoreFor& wanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TrimToCapacity() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SetAside(const RestoreFor& wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Rewind(const RestoreFor& wanted, const ClockRecord& clock, const Owner& owner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SwitchTo(const std::filesystem::path& live, bool create, const Change& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<const Table*> Declared(const std::string& table) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  OfferResult DecideOne(Entry& entry, rocksdb::WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Evict(const Table& table, EntryId id, rocksdb::WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(EntryId id, AdvanceReport& report, rocksdb::WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteRegenerations(std::span<const Rescored> rescored, uint64_t failures_max,
                         AdvanceReport& report, rocksdb::WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeRoomForIds(uint64_t count, rocksdb::WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StoreInfo Look() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Keeps a look for Info, before a write that may take long.
  void LookFirst() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) ABSL_LOCKS_EXCLUDED(looked_mutex_);
  absl::Status CheckUsable() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<const Entry*> Record(EntryId id) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Entry> Read(Entry record, bool conditioning) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<DrawReport> Read(const replay::Drawn& drawn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EvictDamaged(const std::vector<EntryId>& damaged) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::unique_ptr<ReplayDirectory> directory_;

  // The answer of Info while a write has the store.
  mutable absl::Mutex looked_mutex_;
  mutable StoreInfo looked_ ABSL_GUARDED_BY(looked_mutex_);

  // Readers share it, so that Read does not wait for Read.
  mutable absl::Mutex mutex_;
  std::filesystem::path live_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Database> database_ ABSL_GUARDED_BY(mutex_);  // Null while it cannot be opened.
  std::unique_ptr<ReplayState> state_ ABSL_GUARDED_BY(mutex_);  // Null when database_ is.
  bool write_failed_ ABSL_GUARDED_BY(mutex_) = false;           // Recover before the next change.
  Epoch restored_epoch_ ABSL_GUARDED_BY(mutex_);                // As the last Restore said,
  uint64_t restored_start_ ABSL_GUARDED_BY(mutex_) = 0;         // and its start; 0: none.
  uint64_t damaged_ ABSL_GUARDED_BY(mutex_) = 0;                // Since the start.
  std::map<std::string, TableState> counts_ ABSL_GUARDED_BY(mutex_);  // By table; counts only.

  std::unique_ptr<Group> open_ ABSL_GUARDED_BY(mutex_);  // Null: nothing waits to be written.
  // A thread writes a group or copies segments, without the lock; nobody else touches the disk but
  // to read.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  int settling_ ABSL_GUARDED_BY(mutex_) = 0;  // Changes that wait for the groups; offers wait.
  absl::flat_hash_set<EntryId> unsettled_ ABSL_GUARDED_BY(mutex_);  // Entries of such groups.
  std::unique_ptr<SegmentWriter> writer_;             // For the writing thread; null: no segment.
  uint64_t copies_from_ ABSL_GUARDED_BY(mutex_) = 0;  // Dead bytes; after a copy that failed.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread groups_ ABSL_GUARDED_BY(mutex_);  // Writes offers for which nobody waits,
  std::thread teller_ ABSL_GUARDED_BY(mutex_);  // and tells their callers.
  std::vector<std::unique_ptr<Group>> told_ ABSL_GUARDED_BY(mutex_);  // In the order written.
  bool all_written_ ABSL_GUARDED_BY(mutex_) = false;                  // At the end.
};

}  // namespace oxbow::buffer
