// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/replay_store.h"

#include <rocksdb/write_batch.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/replay/priority.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;

// An entry that the learner wants no more; one that has left already stays as it is.
void Leave(ReplayState& state, EntryId id, AdvanceReport& report, rocksdb::WriteBatch& batch) {
  const Entry* entry = state.Find(id);
  if (entry == nullptr || entry->retired) return;
  if (entry->table == replay::kBestTable) ++report.evicted;
  state.Drop(id, batch);
}

void NoteRegenerations(ReplayState& state, std::span<const Rescored> rescored,
                       uint64_t failures_max, AdvanceReport& report, rocksdb::WriteBatch& batch) {
  for (const Rescored& one : rescored) {
    state.Rescore(one, batch);
    report.failed += one.failed ? 1 : 0;
    const Entry* entry = state.Find(one.entry);
    if (entry == nullptr || failures_max == 0 || entry->failures < failures_max) continue;
    Leave(state, one.entry, report, batch);
  }
}

// Copies the content aside before it leaves. A store without entries has nothing to lose.
absl::Status SetAside(LiveReplay& live, const RestoreFor& wanted) {
  if (!live.state().LosesEntries(LearnerStep(0))) return absl::OkStatus();
  const std::optional<fs::path> aside = live.directory().NextAside();
  if (!aside.has_value()) {
    OXBOW_LOG(Warning) << "replay store is not copied aside: older copies are kept instead, until "
                          "the next checkpoint"
                       << Field("copies", kAsidesMax)
                       << Field("entries", live.state().tables().at(replay::kBestTable).size());
    if (wanted.without_copy != nullptr) *wanted.without_copy = true;
    return absl::OkStatus();
  }
  OXBOW_LOG(Info) << "replay store is copied aside" << Field("to", aside->string());
  return live.CopyTo(*aside);
}

// Goes back to the moment after `wanted.step` committed steps as far as that is possible: what was
// born or offered in it or later goes, and so do all draws. What an entry that goes had replaced
// does not come back, and uses stay counted.
absl::Status Rewind(LiveReplay& live, const RestoreFor& wanted, const ClockRecord& clock,
                    const Owner& owner) {
  ReplayState& state = live.state();
  if (state.LosesEntries(wanted.step)) OXBOW_RETURN_IF_ERROR(SetAside(live, wanted));
  rocksdb::WriteBatch batch;
  state.ReleaseDraws(LearnerStep(std::numeric_limits<uint64_t>::max()), batch);
  std::vector<EntryId> late;
  for (const auto& [_, table] : state.tables()) {
    for (const auto& [place, entry] : table.entries()) {
      if (entry.birth >= wanted.step) late.push_back(entry.id);
    }
  }
  for (const EntryId id : late) state.Drop(id, batch);
  state.offered().Rewind(wanted.step, batch);
  state.SetClock(clock, batch);
  state.SetOwner(owner, batch);
  return live.Commit(batch);
}

// ReplayStore::Restore without the check of the caller's start. Requires a settled store that may
// change. At any moment it is wholly there or wholly not.
absl::Status RestoreTo(LiveReplay& live, const Caller& caller, const std::string& name,
                       const RestoreFor& wanted) {
  const Owner before = live.state().owner();
  const LearnerStep now = live.state().clock().step;
  // A store that is new takes any step: its run may be old.
  if (now.value > 0) OXBOW_RETURN_IF_ERROR(CheckStep(now, wanted.step));
  OXBOW_ASSIGN_OR_RETURN(const Claim claim,
                         ClaimOf(before, live.state().clock().epoch, caller, wanted));
  if (claim.changes) {
    OXBOW_LOG(Warning) << "replay buffer is taken from its run" << Field("owner", NameOf(before))
                       << Field("by", NameOf(claim.owner));
  }
  const bool empties = claim.changes || (name.empty() && wanted.step.value == 0);
  if (name.empty() && !empties) {
    return Rewind(live, wanted, {wanted.step, caller.epoch}, claim.owner);
  }
  const fs::path next = live.directory().NextLive();
  if (empties) {
    OXBOW_RETURN_IF_ERROR(SetAside(live, wanted));
  } else {
    OXBOW_ASSIGN_OR_RETURN(const fs::path from, live.directory().FindCheckpoint(name));
    OXBOW_RETURN_IF_ERROR(live.directory().Clone(from, next));
  }
  OXBOW_RETURN_IF_ERROR(
      live.SwitchTo(next, /*create=*/empties, [&](ReplayState& state, rocksdb::WriteBatch& batch) {
        if (!state.owner().run.empty() && state.owner().run != claim.owner.run) {
          return absl::NotFoundError(
              absl::StrCat("replay checkpoint ", name, " is of run ", NameOf(state.owner())));
        }
        const LearnerStep step = claim.changes ? wanted.step : state.clock().step;
        state.SetClock({step, caller.epoch}, batch);
        state.SetOwner(claim.owner, batch);
        return absl::OkStatus();
      }));
  if (claim.changes) OXBOW_RETURN_IF_ERROR(live.directory().SetCheckpointsAside());
  return TrimToCapacity(live);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReplayStore>> ReplayStore::Open(Options options) {
  OXBOW_ASSIGN_OR_RETURN(auto live, LiveReplay::Open(std::move(options)));
  return std::unique_ptr<ReplayStore>(new ReplayStore(std::move(live)));
}

absl::StatusOr<std::unique_ptr<ReplayStore>> ReplayStore::OpenForReading(
    const std::filesystem::path& directory, const replay::Decay& decay) {
  OXBOW_ASSIGN_OR_RETURN(auto live, LiveReplay::OpenForReading(directory, decay));
  return std::unique_ptr<ReplayStore>(new ReplayStore(std::move(live)));
}

absl::Status ReplayStore::Begin(const Caller& caller) {
  offers_.Settle();
  rocksdb::WriteBatch batch;
  OXBOW_RETURN_IF_ERROR(CheckIn(*live_, caller, batch));
  return live_->Commit(batch);
}

// The reader has its answer already.
void ReplayStore::EvictDamaged(const std::vector<EntryId>& damaged) {
  if (damaged.empty() || live_->options().read_only) return;
  offers_.Settle();
  live_->EvictDamaged(damaged);
}

absl::StatusOr<DrawReport> ReplayStore::Draw(const Caller& caller, LearnerStep step, uint64_t count,
                                             uint64_t seed, const std::string& table) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(caller));
  const LearnerStep now = live_->state().clock().step;
  if (step < now) {
    return absl::OutOfRangeError(
        absl::StrCat("draw for a committed step: ", step.value, ", the buffer is at ", now.value));
  }
  OXBOW_RETURN_IF_ERROR(CheckStep(now, step));
  OXBOW_ASSIGN_OR_RETURN(const Table* from, Declared(live_->state(), table));
  if (!from->policy().holds_draws) return Read(from->Draw(step, count, seed));
  const auto drawn = live_->state().draws().find(step);
  if (drawn != live_->state().draws().end()) return Read(drawn->second);
  if (live_->state().draws().size() >= live_->options().open_draws_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many steps hold drawn entries and were not committed: ",
                     live_->options().open_draws_max));
  }
  const replay::Drawn draw = from->Draw(step, count, seed);
  rocksdb::WriteBatch batch;
  live_->state().RecordDraw(step, draw, batch);
  OXBOW_RETURN_IF_ERROR(live_->Commit(batch));
  return Read(draw);
}

// The damaged ones stay in the draw: repeated, it gives the same entries, without them.
absl::StatusOr<DrawReport> ReplayStore::Read(const replay::Drawn& drawn) {
  DrawReport report{.entries = {}, .eligible = drawn.eligible};
  std::vector<EntryId> damaged;
  for (const EntryId id : drawn.entries) {
    absl::StatusOr<Entry> entry =
        ReadEntry(*live_, *live_->state().Find(id), /*conditioning=*/false);
    if (absl::IsDataLoss(entry.status())) {
      damaged.push_back(id);
      continue;
    }
    OXBOW_RETURN_IF_ERROR(entry.status());
    report.entries.push_back(*std::move(entry));
  }
  EvictDamaged(damaged);
  return report;
}

absl::StatusOr<AdvanceReport> ReplayStore::Advance(const Caller& caller, LearnerStep step,
                                                   std::span<const EntryId> used,
                                                   std::span<const EntryId> evict,
                                                   std::span<const Rescored> rescored,
                                                   uint64_t failures_max) {
  for (const Rescored& one : rescored) {
    if (std::isfinite(one.reward.value_or(0))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("new reward of entry ", one.entry.value, " is ", *one.reward));
  }
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(caller));
  const ClockRecord clock = live_->state().clock();
  OXBOW_RETURN_IF_ERROR(CheckStep(clock.step, step));
  const LearnerStep next(step.value + 1);
  if (next < clock.step) {
    return absl::OutOfRangeError(
        absl::StrCat("step ", step.value, " is older than the committed ", clock.step.value - 1));
  }
  AdvanceReport report;
  if (next == clock.step) return report;
  rocksdb::WriteBatch batch;
  for (const EntryId id : used) {
    if (const Entry* entry = live_->state().Find(id); entry != nullptr) {
      report.used_ages.push_back(replay::AgeAt(step, entry->birth));
    }
    live_->state().CountUse(id, step, batch);
  }
  live_->state().SetClock({next, clock.epoch}, batch);
  live_->state().ReleaseDraws(step, batch);
  NoteRegenerations(live_->state(), rescored, failures_max, report, batch);
  for (const EntryId id : evict) Leave(live_->state(), id, report, batch);
  for (const auto& [_, table] : live_->state().tables()) {
    while (const Entry* old = table.TooOld(next)) Evict(*live_, table, old->id, batch);
  }
  if (next.value > live_->options().remembered_steps) {
    live_->state().offered().ForgetBefore(
        LearnerStep(next.value - live_->options().remembered_steps), batch);
  }
  OXBOW_RETURN_IF_ERROR(live_->Commit(batch));
  return report;
}

absl::StatusOr<Entry> ReplayStore::Find(EntryId id, bool conditioning) {
  const auto find = [&]() -> absl::StatusOr<Entry> {
    absl::ReaderMutexLock lock(&mutex_);
    OXBOW_ASSIGN_OR_RETURN(const Entry* entry, FindRecord(*live_, id));
    return ReadEntry(*live_, *entry, conditioning);
  };
  absl::StatusOr<Entry> found = find();
  if (absl::IsDataLoss(found.status())) {
    absl::MutexLock lock(&mutex_);
    EvictDamaged({id});
  }
  return found;
}

absl::StatusOr<LatentPieces> ReplayStore::ReadPieces(EntryId id, uint32_t first, uint32_t count) {
  const auto read = [&]() -> absl::StatusOr<LatentPieces> {
    absl::ReaderMutexLock lock(&mutex_);
    OXBOW_ASSIGN_OR_RETURN(const Entry* entry, FindRecord(*live_, id));
    if (uint64_t{first} + count > entry->latent_count) {
      return absl::OutOfRangeError(absl::StrCat("entry has ", entry->latent_count,
                                                " latents, asked for ", first, " + ", count));
    }
    return live_->database().Pieces(*entry, first, count);
  };
  absl::StatusOr<LatentPieces> latents = read();
  if (absl::IsDataLoss(latents.status())) {
    absl::MutexLock lock(&mutex_);
    EvictDamaged({id});
  }
  return latents;
}

absl::StatusOr<std::string> ReplayStore::ReadLatents(EntryId id, uint32_t first, uint32_t count) {
  OXBOW_ASSIGN_OR_RETURN(const LatentPieces latents, ReadPieces(id, first, count));
  return latents.Joined();
}

absl::Status ReplayStore::Checkpoint(const Caller& caller, const std::string& name, uint64_t keep) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(caller));
  OXBOW_ASSIGN_OR_RETURN(const auto path, live_->directory().NextCheckpoint(name));
  OXBOW_RETURN_IF_ERROR(live_->CopyTo(path));
  return live_->directory().Publish(path, keep);
}

absl::Status ReplayStore::Restore(const Caller& caller, const std::string& name,
                                  const RestoreFor& wanted) {
  absl::MutexLock lock(&mutex_);
  offers_.Settle();
  OXBOW_RETURN_IF_ERROR(live_->CanWrite());
  OXBOW_RETURN_IF_ERROR(
      CheckStart(live_->state().owner(), restored_epoch_, restored_start_, caller, wanted));
  OXBOW_RETURN_IF_ERROR(RestoreTo(*live_, caller, name, wanted));
  restored_epoch_ = caller.epoch;
  restored_start_ = wanted.start;
  return absl::OkStatus();
}

// The present holder of the store is done in a moment, unless it writes.
StoreInfo ReplayStore::Info() const {
  for (int tries = 0; tries < 50; ++tries) {
    // As a writer: ReaderTryLock fails while somebody awaits a condition.
    if (mutex_.TryLock()) {
      StoreInfo info = live_->Look();
      mutex_.Unlock();
      return info;
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  return live_->LastLook();
}

absl::StatusOr<std::vector<Entry>> ReplayStore::List(const Choose& choose,
                                                     const std::string& table) {
  std::vector<Entry> entries;
  std::vector<EntryId> damaged;
  absl::Status failed;
  const auto take = [&](const Entry& record) ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (live_->undurable().contains(record.id)) return false;
    absl::StatusOr<Entry> entry = ReadEntry(*live_, record, /*conditioning=*/false);
    if (absl::IsDataLoss(entry.status())) {
      damaged.push_back(record.id);
      return false;
    }
    failed.Update(entry.status());
    if (entry.ok()) entries.push_back(*std::move(entry));
    return true;
  };
  const auto list = [&]() -> absl::Status {
    absl::ReaderMutexLock lock(&mutex_);
    OXBOW_RETURN_IF_ERROR(live_->CheckUsable());
    OXBOW_ASSIGN_OR_RETURN(const Table* listed, Declared(live_->state(), table));
    choose(*listed, take);
    return failed;
  };
  OXBOW_RETURN_IF_ERROR(list());
  if (damaged.empty()) return entries;
  absl::MutexLock lock(&mutex_);
  EvictDamaged(damaged);
  return entries;
}

// Alone: records and parts are read one after another, and no write may come between.
absl::StatusOr<VerifiedPage> ReplayStore::Verify(const std::string& cursor, uint64_t limit) {
  absl::MutexLock lock(&mutex_);
  offers_.Settle();
  OXBOW_RETURN_IF_ERROR(live_->CheckUsable());
  live_->LookFirst();
  return VerifyEntries(live_->database(), cursor, limit);
}

}  // namespace oxbow::buffer
