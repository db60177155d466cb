// The replay store keeps the best trajectory of each prompt on disk, under the rules of
// core/replay.
//
//   Offer     entries of one call are decided one after another and become durable together
//   Draw      fixed per step: the same step gets the same entries, also after a restart
//   Advance   a step committed: ages, uses, and lets go of what the step had drawn
//   Restore   goes back to a checkpoint, at any moment either wholly there or wholly not
//
// Beside that table, `best`, there are queues as declared (core/replay/table_policy.h). They share
// its epochs, ids, clock and checkpoints. A draw from one writes and holds nothing: the same
// content and step give the same entries. Queues that are declared no more are emptied at the
// start.
//
// Every change is one atomic write that is fsynced before the call returns, so it survives kill -9
// and power loss. Where a call fails nothing of it is there, and the store goes on (a full disk:
// when there is room again). A call with a smaller epoch than the largest seen is kAborted.
//
// Ids are remembered for `remembered_steps` after their offer or birth, whichever is later; an
// entry born longer ago than that is refused. So an id never enters twice, and the memory of them
// is bounded.
//
// In the directory: see replay_directory.h; in the database: replay_records.h. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "core/replay/draw.h"
#include "services/buffer/replay_state.h"
#include "services/buffer/verification.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace oxbow::buffer {

class ReplayDirectory;

enum class Outcome { kInserted, kReplaced, kRejectedLower, kDuplicate, kRejectedInvalid };
inline constexpr size_t kOutcomes = 5;

struct OfferResult {
  Outcome outcome = Outcome::kRejectedInvalid;
  EntryId replaced;     // Only with kReplaced.
  std::string error;    // Only with kRejectedInvalid.
  bool queued = false;  // Was for another table than best.
};

struct OfferReport {
  std::vector<OfferResult> results;  // One per entry, in order.
  absl::Duration sync_time;  // Of the write and its fsync; zero if nothing had to be written.
};

// An entry as it is now.
struct EntryView {
  replay::EntryFacts facts;
  EntryExtent extent;
  double priority = 0;
  std::string header;
  std::string conditioning;  // Only where asked for.
};

struct DrawReport {
  std::vector<EntryView> entries;  // With conditioning.
  uint64_t eligible = 0;
};

struct AdvanceReport {
  std::vector<uint64_t> used_ages;  // Of what was used, in steps. Empty when the step was known.
  uint64_t evicted = 0;
};

struct TableState {
  replay::TablePolicy policy;
  uint64_t entries = 0;
  uint64_t bytes = 0;
  // Since the start of the process:
  uint64_t evicted = 0;  // For room or age; of queues alone.
  std::array<uint64_t, kOutcomes> offers{};
};

// All but `tables` is of best.
struct StoreInfo {
  uint64_t entries = 0;
  uint64_t capacity = 0;
  uint64_t bytes = 0;  // Of live entries.
  uint64_t retired = 0;
  uint64_t disk_bytes = 0;      // Of files; more than `bytes` until compaction has caught up.
  bool writes_stopped = false;  // Until compaction has caught up.
  uint64_t compaction_pending_bytes = 0;
  double stall_seconds =
      0;  // Writes held back since the database was opened; Restore opens another.
  uint64_t disk_free_bytes = 0;
  LearnerStep step;
  Epoch epoch;
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
    uint64_t capacity = 512;
    replay::Decay decay;
    replay::DrawLimits limits;
    replay::DrawPolicy draw = replay::DrawPolicy::kUniform;  // Of best: kUniform or kPriority.
    std::vector<replay::TablePolicy> queues;
    uint64_t remembered_steps = 1024;
    uint64_t open_draws_max = 64;           // Steps that may hold entries at a time.
    uint64_t remembered_max = 1'000'000;    // Ids; Offer is refused past this.
    rocksdb::Env* environment = nullptr;    // Tests inject faults here. Not owned.
    const Clock* clock = &Clock::Steady();  // Not owned.
    bool read_only = false;                 // Of OpenForReading.
  };

  // Opens the store, creating it if absent; evicts the lowest entries past the capacity.
  // kInvalidArgument for options out of range, kDataLoss if the store is damaged, kUnavailable if
  // another process holds it.
  static absl::StatusOr<std::unique_ptr<ReplayStore>> Open(Options options);

  // Looks into a store that no process serves, writing nothing: every change is
  // kFailedPrecondition. Queues are those that have entries; the capacity is what is there.
  // kNotFound if there is no store, kUnavailable while a process holds it, kDataLoss as above.
  static absl::StatusOr<std::unique_ptr<ReplayStore>> OpenForReading(
      const std::filesystem::path& directory, const replay::Decay& decay);
  ~ReplayStore();

  absl::StatusOr<OfferReport> Offer(Epoch epoch, std::span<const NewEntry> entries)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // kAborted if the step was committed before; kResourceExhausted if too many steps hold entries.
  absl::StatusOr<DrawReport> Draw(Epoch epoch, LearnerStep step, uint64_t count, uint64_t seed)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Up to `count` entries of a queue that were born before `step`, as its policy says. kNotFound if
  // the table is not declared, kAborted as above.
  absl::StatusOr<DrawReport> DrawQueued(const std::string& table, Epoch epoch, LearnerStep step,
                                        uint64_t count, uint64_t seed) ABSL_LOCKS_EXCLUDED(mutex_);

  // Counts `used`, moves the clock to step + 1, lets go of what steps up to `step` had drawn,
  // deletes `evict`, of whatever table, and what is too old for its queue. Unknown ids are ignored.
  // kAborted if a later step was committed before.
  absl::StatusOr<AdvanceReport> Advance(Epoch epoch, LearnerStep step,
                                        std::span<const EntryId> used,
                                        std::span<const EntryId> evict) ABSL_LOCKS_EXCLUDED(mutex_);

  // kNotFound unless the entry is live or held.
  absl::StatusOr<EntryView> Find(EntryId entry) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Latents [first, first + count) of an entry, back to back. kOutOfRange past its end.
  absl::StatusOr<std::string> ReadLatents(EntryId entry, uint32_t first, uint32_t count) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Keeps the content under `name`, in place of an older one of that name, and deletes all but the
  // youngest `keep` names (0: keeps all).
  absl::Status Checkpoint(Epoch epoch, const std::string& name, uint64_t keep)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Goes back to a checkpoint; an empty name empties the store. kNotFound if there is none.
  absl::Status Restore(Epoch epoch, const std::string& name) ABSL_LOCKS_EXCLUDED(mutex_);

  StoreInfo Info() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Up to `limit` live entries with id > `after`, by id, without conditioning.
  absl::StatusOr<std::vector<EntryView>> List(uint64_t limit, EntryId after) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // What is stored of the next entries of all tables (verification.h).
  absl::StatusOr<VerifiedPage> Verify(const std::string& cursor, uint64_t limit) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Up to `limit` entries of a queue that are newer than `after`, oldest first; all of them where
  // `after` is not there. kNotFound if the table is not declared.
  absl::StatusOr<std::vector<EntryView>> ListQueued(const std::string& table, uint64_t limit,
                                                    EntryId after) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  ReplayStore(Options options, std::unique_ptr<ReplayDirectory> directory);

  absl::Status OpenLive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Recover() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Begin(Epoch epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Commit(rocksdb::WriteBatch& batch, bool sync) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TrimToCapacity() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SwitchTo(const std::filesystem::path& live, bool create, Epoch epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OfferResult AppendOne(const NewEntry& entry, rocksdb::WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Evict(const std::string& table, EntryId id, rocksdb::WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DrawRecord DrawBest(LearnerStep step, uint64_t count, uint64_t seed) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckStep(LearnerStep step) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<const EntryQueue*> Queue(const std::string& table) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  OfferResult DecideOne(const NewEntry& entry, rocksdb::WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckUsable() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<EntryView> View(const EntryRecord& record, bool conditioning) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<DrawReport> ViewDraw(const DrawRecord& draw) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::unique_ptr<ReplayDirectory> directory_;

  // Readers share it, so that Read does not wait for Read.
  mutable absl::Mutex mutex_;
  std::filesystem::path live_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Database> database_ ABSL_GUARDED_BY(mutex_);  // Null while it cannot be opened.
  std::unique_ptr<ReplayState> state_ ABSL_GUARDED_BY(mutex_);  // Null when database_ is.
  bool write_failed_ ABSL_GUARDED_BY(mutex_) = false;           // Recover before the next change.
  std::array<uint64_t, kOutcomes> offers_ ABSL_GUARDED_BY(mutex_){};
  std::map<std::string, TableState> queued_ ABSL_GUARDED_BY(mutex_);  // Counts alone, by table.
};

}  // namespace oxbow::buffer
