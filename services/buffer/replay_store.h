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
// together, with one fsync (offer_writer.h); every other change waits for those before it.
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

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/buffer/live_replay.h"
#include "services/buffer/offer_writer.h"
#include "services/buffer/store_reports.h"
#include "services/buffer/verification.h"

namespace oxbow::buffer {

class ReplayStore {
 public:
  using Options = ReplayOptions;

  // Opens the store, creating it if absent; deletes the entries past the tables' capacities.
  // kInvalidArgument for options out of range, kDataLoss if the store is damaged, kUnavailable if
  // another process holds it.
  static absl::StatusOr<std::unique_ptr<ReplayStore>> Open(Options options);

  // Looks into a store that no process serves, writing nothing: every change is
  // kFailedPrecondition. Tables are best and those that have entries; a capacity is what is there.
  // kNotFound if there is no store, kUnavailable while a process holds it, kDataLoss as above.
  static absl::StatusOr<std::unique_ptr<ReplayStore>> OpenForReading(
      const std::filesystem::path& directory, const replay::Decay& decay);

  // kOutOfRange for more entries in one step than ids can be remembered.
  absl::StatusOr<OfferReport> Offer(const Caller& caller, std::vector<Entry> entries)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    return offers_.Offer(caller, std::move(entries));
  }

  // The same without waiting: decides now, and calls `done` once, from any thread, when the offer
  // is durable or has failed. Offers are durable in the order of the calls. `done` may not call the
  // store.
  void OfferAsync(const Caller& caller, std::vector<Entry> entries, OfferWriter::Offered done)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    offers_.OfferAsync(caller, std::move(entries), std::move(done));
  }

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
  StoreInfo Info() const ABSL_LOCKS_EXCLUDED(mutex_);

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
  explicit ReplayStore(std::unique_ptr<LiveReplay> live) : live_(std::move(live)) {}

  // All that was offered is durable, and the caller may change the store.
  absl::Status Begin(const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EvictDamaged(const std::vector<EntryId>& damaged) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<DrawReport> Read(const replay::Drawn& drawn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Readers share it, so that a read does not wait for a read.
  mutable absl::Mutex mutex_;
  const std::unique_ptr<LiveReplay> live_ ABSL_PT_GUARDED_BY(mutex_);
  Epoch restored_epoch_ ABSL_GUARDED_BY(mutex_);         // As the last Restore said,
  uint64_t restored_start_ ABSL_GUARDED_BY(mutex_) = 0;  // and its start; 0: none.
  OfferWriter offers_{mutex_, *live_};                   // Ends first.
};

}  // namespace oxbow::buffer
