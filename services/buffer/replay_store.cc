// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/replay_store.h"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/replay/priority.h"
#include "services/buffer/database.h"
#include "services/buffer/replay_directory.h"

namespace oxbow::buffer {
absl::StatusOr<std::unique_ptr<ReplayStore>> ReplayStore::Open(Options options) {
  OXBOW_RETURN_IF_ERROR(replay::Validate(options.decay));
  OXBOW_RETURN_IF_ERROR(replay::Validate(options.tables));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<ReplayDirectory> directory,
                         ReplayDirectory::Open(options.directory));
  std::unique_ptr<ReplayStore> store(new ReplayStore(std::move(options), std::move(directory)));
  absl::MutexLock lock(&store->mutex_);
  OXBOW_ASSIGN_OR_RETURN(const ReplayDirectory::Live live, store->directory_->FindLive());
  store->live_ = live.path;
  if (live.settled) {
    store->directory_->Sweep(live.path);
    OXBOW_RETURN_IF_ERROR(store->OpenLive());
  } else {
    OXBOW_RETURN_IF_ERROR(
        store->SwitchTo(live.path, /*create=*/true, [](auto&, auto&) { return absl::OkStatus(); }));
  }
  OXBOW_RETURN_IF_ERROR(store->TrimToCapacity());
  return store;
}

absl::StatusOr<std::unique_ptr<ReplayStore>> ReplayStore::OpenForReading(
    const std::filesystem::path& path, const replay::Decay& decay) {
  OXBOW_RETURN_IF_ERROR(replay::Validate(decay));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<ReplayDirectory> directory,
                         ReplayDirectory::OpenForReading(path));
  OXBOW_ASSIGN_OR_RETURN(const ReplayDirectory::Live live, directory->FindLive());
  if (!live.settled) {
    return absl::NotFoundError(absl::StrCat("replay store holds nothing yet: ", path.string()));
  }
  OXBOW_ASSIGN_OR_RETURN(auto database, Database::OpenReadOnly(live.path));
  Options options{.directory = path, .decay = decay, .read_only = true};
  OXBOW_ASSIGN_OR_RETURN(const auto state, ReplayState::Load(*database, decay, options.tables));
  const auto declare = [](const Table& table, replay::TablePolicy policy) {
    policy.capacity = std::max<uint64_t>(1, table.size());
    return policy;
  };
  const std::string best = replay::kBestTable;
  options.tables = {declare(state->tables().at(best), replay::BestTable(1))};
  for (const auto& [name, table] : state->tables()) {
    if (name != best) options.tables.push_back(declare(table, table.policy()));
  }
  std::unique_ptr<ReplayStore> store(new ReplayStore(std::move(options), std::move(directory)));
  absl::MutexLock lock(&store->mutex_);
  store->live_ = live.path;
  store->database_ = std::move(database);
  OXBOW_RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status ReplayStore::CanWrite() {
  if (options_.read_only) {
    return absl::FailedPreconditionError("replay store was opened to look into it only");
  }
  return write_failed_ || state_ == nullptr ? Recover() : absl::OkStatus();
}

absl::Status ReplayStore::CheckIn(const Caller& caller, rocksdb::WriteBatch& batch) {
  OXBOW_RETURN_IF_ERROR(CanWrite());
  const ClockRecord clock = state_->clock();
  OXBOW_RETURN_IF_ERROR(CheckCaller(state_->owner(), clock.epoch, caller));
  if (caller.epoch != clock.epoch) state_->SetClock({clock.step, caller.epoch}, batch);
  if (!caller.run.empty()) {
    Owner owner = state_->owner();
    owner.run = caller.run;
    state_->SetOwner(std::move(owner), batch);
  }
  return absl::OkStatus();
}

absl::Status ReplayStore::Begin(const Caller& caller) {
  Settle();
  rocksdb::WriteBatch batch;
  OXBOW_RETURN_IF_ERROR(CheckIn(caller, batch));
  return Commit(batch, /*sync=*/true);
}

// Requires that no group is being written or waits for it.
absl::Status ReplayStore::Commit(rocksdb::WriteBatch& batch, bool sync) {
  if (batch.Count() == 0) return absl::OkStatus();
  LookFirst();
  const absl::Status status = database_->Write(batch, sync);
  if (!status.ok()) {
    // Memory is ahead of the disk now: go back to what the disk says.
    write_failed_ = true;
    Load().IgnoreError();
    return status;
  }
  for (const uint64_t segment : state_->segments().TakeDead()) {
    database_->segments().Delete(segment);
  }
  return status;
}

// The state as the database has it; none, if it cannot be read.
absl::Status ReplayStore::Load() {
  auto state = ReplayState::Load(*database_, options_.decay, options_.tables, options_.segments);
  absl::Status status = state.status();
  Take(state.ok() ? *std::move(state) : nullptr);
  return status;
}

void ReplayStore::Take(std::unique_ptr<ReplayState> state) {
  state_ = std::move(state);
  writer_.reset();
  unsettled_.clear();
  copies_from_ = 0;
  if (state_ == nullptr || options_.read_only) return;
  // Left by a crash or by a write that failed.
  for (const uint64_t segment : database_->segments().List()) {
    if (!state_->segments().Holds(segment)) database_->segments().Delete(segment);
  }
}

absl::Status ReplayStore::TrimToCapacity() {
  rocksdb::WriteBatch batch;
  for (const auto& [_, table] : state_->tables()) {
    while (table.size() > table.policy().capacity) state_->Drop(table.NextToLeave()->id, batch);
  }
  return Commit(batch, /*sync=*/true);
}

// A table that is declared no more has no capacity.
absl::StatusOr<const Table*> ReplayStore::Declared(const std::string& table) const {
  const auto found = state_->tables().find(table);
  if (found != state_->tables().end() && found->second.policy().capacity > 0) return &found->second;
  return absl::NotFoundError(absl::StrCat("table is not declared in the buffer's config: ", table));
}

void ReplayStore::Evict(const Table& table, EntryId id, rocksdb::WriteBatch& batch) {
  state_->Drop(id, batch);
  ++counts_[table.policy().name].evicted;
}

OfferResult ReplayStore::DecideOne(Entry& entry, rocksdb::WriteBatch& batch) {
  OfferResult result{.entry = entry.id};
  const auto decided = [&](Outcome outcome, std::string error = "") {
    result.outcome = outcome;
    result.error = std::move(error);
    return result;
  };
  const LearnerStep now = state_->clock().step;
  if (state_->WasOffered(entry.id)) return decided(Outcome::kDuplicate);
  if (!entry.invalid.empty()) return decided(Outcome::kRejectedInvalid, entry.invalid);
  if (!std::isfinite(entry.reward)) {
    return decided(Outcome::kRejectedInvalid, absl::StrCat("reward is ", entry.reward));
  }
  if (replay::AgeAt(now, entry.birth) > options_.remembered_steps) {
    return decided(Outcome::kRejectedInvalid,
                   absl::StrCat("born more than ", options_.remembered_steps,
                                " steps ago: ", entry.birth.value));
  }
  if (entry.birth < state_->forgotten()) {
    return decided(Outcome::kRejectedInvalid,
                   absl::StrCat("born before step ", state_->forgotten().value,
                                ", whose ids had to be forgotten: ", entry.birth.value));
  }
  if (const absl::Status ahead = CheckStep(now, entry.birth); !ahead.ok()) {
    return decided(Outcome::kRejectedInvalid, absl::StrCat("birth: ", ahead.message()));
  }
  const absl::StatusOr<const Table*> declared = Declared(entry.table);
  if (!declared.ok()) {
    return decided(Outcome::kRejectedInvalid, std::string(declared.status().message()));
  }
  const Table& table = **declared;
  state_->Remember(entry.id, std::max(now, entry.birth), batch);
  const replay::Decision decision = table.Decide(entry, now);
  if (decision.verdict == replay::Verdict::kReject) return decided(Outcome::kRejectedLower);
  if (decision.verdict == replay::Verdict::kReplace) state_->Drop(decision.victim, batch);
  state_->Insert(entry, batch);
  while (table.size() > table.policy().capacity) Evict(table, table.NextToLeave()->id, batch);
  result.replaced = decision.victim;
  return decided(decision.verdict == replay::Verdict::kInsert ? Outcome::kInserted
                                                              : Outcome::kReplaced);
}

// Takes room from the oldest steps, not from the present one, whose offers may still be repeated.
absl::Status ReplayStore::MakeRoomForIds(uint64_t count, rocksdb::WriteBatch& batch) {
  const uint64_t most = options_.remembered_max;
  if (state_->remembered() + count <= most) return absl::OkStatus();
  state_->ForgetDownTo(most - std::min(most, count), state_->clock().step, batch);
  if (state_->remembered() + count <= most) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("more entries were offered in one step than ids can be "
                   "remembered: ",
                   state_->remembered() + count, ", limit ", most));
}

absl::StatusOr<DrawReport> ReplayStore::Draw(const Caller& caller, LearnerStep step, uint64_t count,
                                             uint64_t seed, const std::string& table) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(caller));
  const LearnerStep now = state_->clock().step;
  if (step < now) {
    return absl::OutOfRangeError(
        absl::StrCat("draw for a committed step: ", step.value, ", the buffer is at ", now.value));
  }
  OXBOW_RETURN_IF_ERROR(CheckStep(now, step));
  OXBOW_ASSIGN_OR_RETURN(const Table* from, Declared(table));
  if (!from->policy().holds_draws) return Read(from->Draw(step, count, seed));
  const auto drawn = state_->draws().find(step);
  if (drawn != state_->draws().end()) return Read(drawn->second);
  if (state_->draws().size() >= options_.open_draws_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too many steps hold drawn entries and were not committed: ", options_.open_draws_max));
  }
  const replay::Drawn draw = from->Draw(step, count, seed);
  rocksdb::WriteBatch batch;
  state_->RecordDraw(step, draw, batch);
  OXBOW_RETURN_IF_ERROR(Commit(batch, /*sync=*/true));
  return Read(draw);
}

// An entry that the learner wants no more; one that has left already stays as it is.
void ReplayStore::Leave(EntryId id, AdvanceReport& report, rocksdb::WriteBatch& batch) {
  const Entry* entry = state_->Find(id);
  if (entry == nullptr || entry->retired) return;
  if (entry->table == replay::kBestTable) ++report.evicted;
  state_->Drop(id, batch);
}

void ReplayStore::NoteRegenerations(std::span<const Rescored> rescored, uint64_t failures_max,
                                    AdvanceReport& report, rocksdb::WriteBatch& batch) {
  for (const Rescored& one : rescored) {
    state_->Rescore(one, batch);
    report.failed += one.failed ? 1 : 0;
    const Entry* entry = state_->Find(one.entry);
    if (entry == nullptr || failures_max == 0 || entry->failures < failures_max) continue;
    Leave(one.entry, report, batch);
  }
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
  const ClockRecord clock = state_->clock();
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
    if (const Entry* entry = state_->Find(id); entry != nullptr) {
      report.used_ages.push_back(replay::AgeAt(step, entry->birth));
    }
    state_->CountUse(id, step, batch);
  }
  state_->SetClock({next, clock.epoch}, batch);
  state_->ReleaseDraws(step, batch);
  NoteRegenerations(rescored, failures_max, report, batch);
  for (const EntryId id : evict) Leave(id, report, batch);
  for (const auto& [_, table] : state_->tables()) {
    while (const Entry* old = table.TooOld(next)) Evict(table, old->id, batch);
  }
  if (next.value > options_.remembered_steps) {
    state_->ForgetBefore(LearnerStep(next.value - options_.remembered_steps), batch);
  }
  OXBOW_RETURN_IF_ERROR(Commit(batch, /*sync=*/true));
  return report;
}

}  // namespace oxbow::buffer
