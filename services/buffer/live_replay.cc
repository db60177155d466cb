// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/live_replay.h"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/replay/priority.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;

// Rewards, priorities, ages and uses of a table at `info.step`.
void Describe(const Table& table, StoreInfo& info) {
  const replay::ValueSums& sums = table.sums();
  if (sums.size() == 0) return;
  info.reward_mean = sums.RewardMean();
  info.priority_mean = sums.PriorityMean(info.step);
  info.priority_min = table.PriorityPercentile(0, info.step);
  info.priority_p10 = table.PriorityPercentile(10, info.step);
  info.priority_p50 = table.PriorityPercentile(50, info.step);
  info.priority_p90 = table.PriorityPercentile(90, info.step);
  info.age_mean_steps = sums.AgeMean(info.step);
  info.age_max_steps = static_cast<double>(sums.AgeMax(info.step));
  info.uses_mean = static_cast<double>(table.uses()) / static_cast<double>(table.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<LiveReplay>> LiveReplay::Open(ReplayOptions options) {
  OXBOW_RETURN_IF_ERROR(replay::Validate(options.decay));
  OXBOW_RETURN_IF_ERROR(replay::Validate(options.tables));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<ReplayDirectory> directory,
                         ReplayDirectory::Open(options.directory));
  std::unique_ptr<LiveReplay> replay(new LiveReplay(std::move(options), std::move(directory)));
  OXBOW_ASSIGN_OR_RETURN(const ReplayDirectory::Live live, replay->directory_->FindLive());
  replay->path_ = live.path;
  if (live.settled) {
    replay->directory_->Sweep(live.path);
    OXBOW_RETURN_IF_ERROR(replay->OpenLive());
  } else {
    OXBOW_RETURN_IF_ERROR(replay->SwitchTo(live.path, /*create=*/true,
                                           [](auto&, auto&) { return absl::OkStatus(); }));
  }
  OXBOW_RETURN_IF_ERROR(buffer::TrimToCapacity(*replay));
  return replay;
}

absl::StatusOr<std::unique_ptr<LiveReplay>> LiveReplay::OpenForReading(const fs::path& path,
                                                                       const replay::Decay& decay) {
  OXBOW_RETURN_IF_ERROR(replay::Validate(decay));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<ReplayDirectory> directory,
                         ReplayDirectory::OpenForReading(path));
  OXBOW_ASSIGN_OR_RETURN(const ReplayDirectory::Live live, directory->FindLive());
  if (!live.settled) {
    return absl::NotFoundError(absl::StrCat("replay store holds nothing yet: ", path.string()));
  }
  OXBOW_ASSIGN_OR_RETURN(auto database, Database::OpenReadOnly(live.path));
  ReplayOptions options{.directory = path, .decay = decay, .read_only = true};
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
  std::unique_ptr<LiveReplay> replay(new LiveReplay(std::move(options), std::move(directory)));
  replay->path_ = live.path;
  replay->database_ = std::move(database);
  OXBOW_RETURN_IF_ERROR(replay->Load());
  return replay;
}

absl::Status LiveReplay::CanWrite() {
  if (options_.read_only) {
    return absl::FailedPreconditionError("replay store was opened to look into it only");
  }
  return write_failed_ || state_ == nullptr ? Recover() : absl::OkStatus();
}

absl::Status LiveReplay::Commit(rocksdb::WriteBatch& batch) {
  if (batch.Count() == 0) return absl::OkStatus();
  LookFirst();
  const absl::Status status = database_->Write(batch, /*sync=*/true);
  if (!status.ok()) {
    NoteFailedWrite();
    return status;
  }
  for (const uint64_t segment : state_->parts().segments().TakeDead()) {
    database_->segments().Delete(segment);
  }
  return status;
}

void LiveReplay::NoteFailedWrite() {
  write_failed_ = true;
  Load().IgnoreError();
}

absl::Status LiveReplay::CheckUsable() const {
  if (state_ == nullptr) {
    return absl::UnavailableError("replay store could not be reopened after a failed write");
  }
  return absl::OkStatus();
}

void LiveReplay::EvictDamaged(const std::vector<EntryId>& damaged) {
  if (damaged.empty() || options_.read_only || state_ == nullptr) return;
  rocksdb::WriteBatch batch;
  for (const EntryId id : damaged) {
    const Entry* entry = state_->Find(id);
    if (entry == nullptr || entry->retired) continue;
    OXBOW_LOG(Warning) << "replay entry is damaged and leaves" << Field("entry", id)
                       << Field("table", entry->table);
    state_->Drop(id, batch);
    ++damaged_;
  }
  if (const absl::Status status = Commit(batch); !status.ok()) {
    OXBOW_LOG(Warning) << "damaged replay entries could not be deleted"
                       << Field("error", std::string(status.message()));
  }
}

absl::Status LiveReplay::CopyTo(const fs::path& path) {
  LookFirst();
  state_->parts().segments().Seal();
  const absl::Status status = database_->CopyTo(path);
  if (!status.ok()) write_failed_ = true;  // It flushes first, so a full disk stops RocksDB here.
  return status;
}

absl::Status LiveReplay::SwitchTo(const fs::path& live, bool create, const Change& change) {
  LookFirst();
  const auto load = [this](const Database& database) {
    return ReplayState::Load(database, options_.decay, options_.tables, options_.segments);
  };
  const auto prepare = [&]() -> absl::StatusOr<std::unique_ptr<Database>> {
    OXBOW_ASSIGN_OR_RETURN(auto database, Database::Open(live, create, options_.environment));
    OXBOW_ASSIGN_OR_RETURN(const auto state, load(*database));
    rocksdb::WriteBatch batch;
    OXBOW_RETURN_IF_ERROR(change(*state, batch));
    state->SetClock(state->clock(), batch);  // A new database is one only with a record.
    OXBOW_RETURN_IF_ERROR(database->Write(batch, /*sync=*/true));
    return database;
  };
  auto prepared = prepare();
  if (!prepared.ok()) {
    std::error_code ignored;
    if (live != path_) fs::remove_all(live, ignored);
    return prepared.status();
  }
  OXBOW_ASSIGN_OR_RETURN(auto state, load(**prepared));
  if (const absl::Status status = directory_->Settle(live); !status.ok()) {
    // The pointer may have moved all the same; the next start must find what is in use.
    if (live != path_) directory_->Settle(path_).IgnoreError();
    return status;
  }
  state_.reset();  // Before its database.
  database_ = *std::move(prepared);
  Take(std::move(state));
  path_ = live;
  write_failed_ = false;
  directory_->Sweep(live);
  return absl::OkStatus();
}

StoreInfo LiveReplay::Look() const {
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
  info.disk_bytes = database_->disk_bytes() + state_->parts().segments().bytes();
  const Database::Pressure pressure = database_->pressure();
  info.writes_stopped = pressure.writes_stopped;
  info.compaction_pending_bytes = pressure.compaction_pending_bytes;
  info.stall_seconds = pressure.stall_seconds;
  std::error_code ignored;
  const fs::space_info space = fs::space(options_.directory, ignored);
  if (!ignored) info.disk_free_bytes = space.available;
  info.step = state_->clock().step;
  info.epoch = state_->clock().epoch;
  info.owner = state_->owner();
  Describe(state_->tables().at(replay::kBestTable), info);
  return info;
}

void LiveReplay::LookFirst() const {
  StoreInfo info = Look();
  absl::MutexLock lock(&looked_mutex_);
  looked_ = std::move(info);
}

StoreInfo LiveReplay::LastLook() const {
  absl::MutexLock lock(&looked_mutex_);
  return looked_;
}

absl::Status LiveReplay::OpenLive(bool compacts) {
  state_.reset();
  database_.reset();  // RocksDB's own lock: closed before it is opened again.
  OXBOW_ASSIGN_OR_RETURN(auto database,
                         Database::Open(path_, /*create=*/false, options_.environment, compacts));
  database_ = std::move(database);
  const absl::Status status = Load();
  if (!status.ok()) database_.reset();
  return status;
}

// The state as the database has it; none, if it cannot be read.
absl::Status LiveReplay::Load() {
  auto state = ReplayState::Load(*database_, options_.decay, options_.tables, options_.segments);
  absl::Status status = state.status();
  Take(state.ok() ? *std::move(state) : nullptr);
  return status;
}

void LiveReplay::Take(std::unique_ptr<ReplayState> state) {
  state_ = std::move(state);
  ++loads_;
  undurable_.clear();
  if (state_ == nullptr || options_.read_only) return;
  // Left by a crash or by a write that failed.
  for (const uint64_t segment : database_->segments().List()) {
    if (!state_->parts().segments().Holds(segment)) database_->segments().Delete(segment);
  }
}

// Asks RocksDB to go on after a failed write; where it will not, opens the database again, which
// replays its log up to the last whole write. Not before there is room: a database that is closed
// and cannot be opened could not even be read.
absl::Status LiveReplay::Recover() {
  const absl::Status resumed =
      database_ == nullptr ? absl::UnavailableError("closed") : database_->Resume();
  if (resumed.ok()) {
    OXBOW_RETURN_IF_ERROR(Load());
  } else {
    OXBOW_RETURN_IF_ERROR(Database::ProbeRoom(path_, options_.environment));
    OXBOW_RETURN_IF_ERROR(OpenLive(/*compacts=*/!absl::IsDataLoss(resumed)));
    if (absl::IsDataLoss(resumed)) {
      if (const absl::Status status = DropDamaged(); !status.ok()) {
        state_.reset();
        database_.reset();  // It does not compact: the next call opens it again.
        return status;
      }
    }
  }
  write_failed_ = false;
  OXBOW_LOG(Info) << "replay store writes again"
                  << Field("entries", state_->tables().at(replay::kBestTable).size());
  return absl::OkStatus();
}

// Reads every part of every entry, as a compaction would. Needs a database that does not compact by
// itself; it compacts when this returns OK.
absl::Status LiveReplay::DropDamaged() {
  std::vector<EntryId> damaged;
  for (const auto& [_, table] : state_->tables()) {
    for (const auto& [place, entry] : table.entries()) {
      absl::Status status = ReadEntry(*this, entry, /*conditioning=*/true).status();
      if (status.ok()) status = database_->Latents(entry, 0, entry.latent_count).status();
      if (absl::IsDataLoss(status)) damaged.push_back(entry.id);
    }
  }
  // Entries held by a step keep their bytes: damaged ones must not, or compaction meets them again.
  rocksdb::WriteBatch batch;
  state_->ReleaseDraws(LearnerStep(std::numeric_limits<uint64_t>::max()), batch);
  OXBOW_RETURN_IF_ERROR(Commit(batch));
  EvictDamaged(damaged);
  return database_->CompactAll();
}

absl::Status CheckIn(LiveReplay& live, const Caller& caller, rocksdb::WriteBatch& batch) {
  OXBOW_RETURN_IF_ERROR(live.CanWrite());
  const ClockRecord clock = live.state().clock();
  OXBOW_RETURN_IF_ERROR(CheckCaller(live.state().owner(), clock.epoch, caller));
  if (caller.epoch != clock.epoch) live.state().SetClock({clock.step, caller.epoch}, batch);
  if (!caller.run.empty()) {
    Owner owner = live.state().owner();
    owner.run = caller.run;
    live.state().SetOwner(std::move(owner), batch);
  }
  return absl::OkStatus();
}

void Evict(LiveReplay& live, const Table& table, EntryId id, rocksdb::WriteBatch& batch) {
  live.state().Drop(id, batch);
  ++live.counts(table.policy().name).evicted;
}

absl::StatusOr<const Entry*> FindRecord(LiveReplay& live, EntryId id) {
  OXBOW_RETURN_IF_ERROR(live.CheckUsable());
  const Entry* entry = live.state().Find(id);
  if (entry != nullptr && !live.undurable().contains(id)) return entry;
  return absl::NotFoundError(absl::StrCat("replay entry is not in the buffer: ", id.value));
}

absl::StatusOr<Entry> ReadEntry(LiveReplay& live, Entry record, bool conditioning) {
  const uint64_t age = replay::AgeAt(live.state().clock().step, record.birth);
  record.priority = replay::PriorityAt(live.options().decay, record.value(), age);
  OXBOW_ASSIGN_OR_RETURN(record.header, live.database().Header(record.id));
  if (!conditioning) return record;
  OXBOW_ASSIGN_OR_RETURN(record.conditioning, live.database().Conditioning(record));
  return record;
}

absl::Status TrimToCapacity(LiveReplay& live) {
  rocksdb::WriteBatch batch;
  for (const auto& [_, table] : live.state().tables()) {
    while (table.size() > table.policy().capacity)
      live.state().Drop(table.NextToLeave()->id, batch);
  }
  return live.Commit(batch);
}

absl::StatusOr<const Table*> Declared(const ReplayState& state, const std::string& table) {
  const auto found = state.tables().find(table);
  if (found != state.tables().end() && found->second.policy().capacity > 0) return &found->second;
  return absl::NotFoundError(absl::StrCat("table is not declared in the buffer's config: ", table));
}

}  // namespace oxbow::buffer
