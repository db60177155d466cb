// SPDX-License-Identifier: Apache-2.0
// Reads that the store answers without a caller, and what it does with damaged entries.
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/replay/priority.h"
#include "services/buffer/database.h"
#include "services/buffer/replay_store.h"

namespace oxbow::buffer {
namespace {

// Rewards, priorities, ages and uses of a table at `info.step`.
void Describe(const Table& table, StoreInfo& info) {
  const replay::ValueSums& sums = table.sums();
  if (sums.size() == 0) return;
  info.reward_mean = sums.RewardMean();
  info.priority_mean = sums.PriorityMean(info.step);
  info.priority_min = table.PriorityMin(info.step);
  info.priority_p10 = table.PriorityPercentile(10, info.step);
  info.priority_p50 = table.PriorityPercentile(50, info.step);
  info.priority_p90 = table.PriorityPercentile(90, info.step);
  info.age_mean_steps = sums.AgeMean(info.step);
  info.age_max_steps = static_cast<double>(sums.AgeMax(info.step));
  info.uses_mean = static_cast<double>(table.uses()) / static_cast<double>(table.size());
}

}  // namespace

absl::Status ReplayStore::CheckUsable() const {
  if (state_ == nullptr) {
    return absl::UnavailableError("replay store could not be reopened after a failed write");
  }
  return absl::OkStatus();
}

absl::StatusOr<Entry> ReplayStore::Read(Entry record, bool conditioning) const {
  const uint64_t age = replay::AgeAt(state_->clock().step, record.birth);
  record.priority = replay::PriorityAt(options_.decay, record.value(), age);
  OXBOW_ASSIGN_OR_RETURN(record.header, database_->Header(record.id));
  if (!conditioning) return record;
  OXBOW_ASSIGN_OR_RETURN(record.conditioning, database_->Conditioning(record));
  return record;
}

// The damaged ones stay in the draw: repeated, it gives the same entries, without them.
absl::StatusOr<DrawReport> ReplayStore::Read(const replay::Drawn& drawn) {
  DrawReport report{.entries = {}, .eligible = drawn.eligible};
  std::vector<EntryId> damaged;
  for (const EntryId id : drawn.entries) {
    absl::StatusOr<Entry> entry = Read(*state_->Find(id), /*conditioning=*/false);
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

// The reader has its answer already: if the disk is full too, they leave another time.
void ReplayStore::EvictDamaged(const std::vector<EntryId>& damaged) {
  if (damaged.empty() || options_.read_only) return;
  Settle();
  if (state_ == nullptr) return;
  rocksdb::WriteBatch batch;
  for (const EntryId id : damaged) {
    const Entry* entry = state_->Find(id);
    if (entry == nullptr || entry->retired) continue;
    OXBOW_LOG(Warning) << "replay entry is damaged and leaves" << Field("entry", id)
                       << Field("table", entry->table);
    state_->Drop(id, batch);
    ++damaged_;
  }
  if (const absl::Status status = Commit(batch, /*sync=*/true); !status.ok()) {
    OXBOW_LOG(Warning) << "damaged replay entries could not be deleted"
                       << Field("error", std::string(status.message()));
  }
}

// Reads every part of every entry, as a compaction would. Needs a database that does not compact by
// itself; it compacts when this returns OK.
absl::Status ReplayStore::DropDamaged() {
  std::vector<EntryId> damaged;
  for (const auto& [_, table] : state_->tables()) {
    for (const auto& [place, entry] : table.entries()) {
      absl::Status status = Read(entry, /*conditioning=*/true).status();
      if (status.ok()) status = database_->Latents(entry, 0, entry.latent_count).status();
      if (absl::IsDataLoss(status)) damaged.push_back(entry.id);
    }
  }
  // Entries held by a step keep their bytes: damaged ones must not, or compaction meets them again.
  rocksdb::WriteBatch batch;
  state_->ReleaseDraws(LearnerStep(std::numeric_limits<uint64_t>::max()), batch);
  OXBOW_RETURN_IF_ERROR(Commit(batch, /*sync=*/true));
  EvictDamaged(damaged);
  return database_->CompactAll();
}

absl::StatusOr<const Entry*> ReplayStore::Record(EntryId id) const {
  OXBOW_RETURN_IF_ERROR(CheckUsable());
  const Entry* entry = state_->Find(id);
  if (entry != nullptr && !unsettled_.contains(id)) return entry;
  return absl::NotFoundError(absl::StrCat("replay entry is not in the buffer: ", id.value));
}

absl::StatusOr<Entry> ReplayStore::Find(EntryId id, bool conditioning) {
  const auto find = [&]() -> absl::StatusOr<Entry> {
    absl::ReaderMutexLock lock(&mutex_);
    OXBOW_ASSIGN_OR_RETURN(const Entry* entry, Record(id));
    return Read(*entry, conditioning);
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
    OXBOW_ASSIGN_OR_RETURN(const Entry* entry, Record(id));
    if (uint64_t{first} + count > entry->latent_count) {
      return absl::OutOfRangeError(absl::StrCat("entry has ", entry->latent_count,
                                                " latents, asked for ", first, " + ", count));
    }
    return database_->Pieces(*entry, first, count);
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

// The present holder of the store is done in a moment, unless it writes.
StoreInfo ReplayStore::Info() const {
  for (int tries = 0; tries < 50; ++tries) {
    // As a writer: ReaderTryLock fails while somebody awaits a condition.
    if (mutex_.TryLock()) {
      StoreInfo info = Look();
      mutex_.Unlock();
      return info;
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  absl::MutexLock lock(&looked_mutex_);
  return looked_;
}

void ReplayStore::LookFirst() const {
  StoreInfo info = Look();
  absl::MutexLock lock(&looked_mutex_);
  looked_ = std::move(info);
}

StoreInfo ReplayStore::Look() const {
  StoreInfo info;
  for (const replay::TablePolicy& policy : options_.tables) {
    const auto counted = counts_.find(policy.name);
    TableState& state = info.tables.emplace_back();
    if (counted != counts_.end()) state = counted->second;
    state.policy = policy;
    if (state_ == nullptr) continue;
    state.entries = state_->tables().at(policy.name).size();
    state.bytes = state_->tables().at(policy.name).bytes();
  }
  const TableState& best = info.tables.front();
  info.entries = best.entries;
  info.capacity = best.policy.capacity;
  info.bytes = best.bytes;
  info.offers = best.offers;
  info.damaged = damaged_;
  if (state_ == nullptr) return info;
  info.retired = state_->retired();
  info.disk_bytes = database_->disk_bytes() + state_->segments().bytes();
  const Database::Pressure pressure = database_->pressure();
  info.writes_stopped = pressure.writes_stopped;
  info.compaction_pending_bytes = pressure.compaction_pending_bytes;
  info.stall_seconds = pressure.stall_seconds;
  std::error_code ignored;
  const std::filesystem::space_info space = std::filesystem::space(options_.directory, ignored);
  if (!ignored) info.disk_free_bytes = space.available;
  info.step = state_->clock().step;
  info.epoch = state_->clock().epoch;
  info.owner = state_->owner();
  Describe(state_->tables().at(replay::kBestTable), info);
  return info;
}

absl::StatusOr<std::vector<Entry>> ReplayStore::List(const Choose& choose,
                                                     const std::string& table) {
  std::vector<Entry> entries;
  std::vector<EntryId> damaged;
  absl::Status failed;
  const auto take = [&](const Entry& record) ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (unsettled_.contains(record.id)) return false;
    absl::StatusOr<Entry> entry = Read(record, /*conditioning=*/false);
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
    OXBOW_RETURN_IF_ERROR(CheckUsable());
    OXBOW_ASSIGN_OR_RETURN(const Table* listed, Declared(table));
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
  Settle();
  OXBOW_RETURN_IF_ERROR(CheckUsable());
  LookFirst();
  return VerifyEntries(*database_, cursor, limit);
}

}  // namespace oxbow::buffer
