// SPDX-License-Identifier: Apache-2.0
// How the store comes back: after a failed write, and to the content of an earlier moment.
#include <rocksdb/write_batch.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "services/buffer/database.h"
#include "services/buffer/replay_directory.h"
#include "services/buffer/replay_store.h"

namespace oxbow::buffer {

namespace fs = std::filesystem;

absl::Status ReplayStore::OpenLive(bool compacts) {
  state_.reset();
  database_.reset();  // RocksDB's own lock: closed before it is opened again.
  OXBOW_ASSIGN_OR_RETURN(auto database,
                         Database::Open(live_, /*create=*/false, options_.environment, compacts));
  database_ = std::move(database);
  const absl::Status status = Load();
  if (!status.ok()) database_.reset();
  return status;
}

// Asks RocksDB to go on after a failed write; where it will not, opens the database again, which
// replays its log up to the last whole write. Not before there is room: a database that is closed
// and cannot be opened could not even be read.
absl::Status ReplayStore::Recover() {
  const absl::Status resumed =
      database_ == nullptr ? absl::UnavailableError("closed") : database_->Resume();
  if (resumed.ok()) {
    OXBOW_RETURN_IF_ERROR(Load());
  } else {
    OXBOW_RETURN_IF_ERROR(Database::ProbeRoom(live_, options_.environment));
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

absl::Status ReplayStore::Checkpoint(const Caller& caller, const std::string& name, uint64_t keep) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(caller));
  OXBOW_ASSIGN_OR_RETURN(const fs::path path, directory_->NextCheckpoint(name));
  OXBOW_RETURN_IF_ERROR(CopyTo(path));
  return directory_->Publish(path, keep);
}

// The files of a copy are links to those of the store: nothing is appended to them any more.
absl::Status ReplayStore::CopyTo(const fs::path& path) {
  LookFirst();
  state_->segments().Seal();
  const absl::Status status = database_->CopyTo(path);
  if (!status.ok()) write_failed_ = true;  // It flushes first, so a full disk stops RocksDB here.
  return status;
}

absl::Status ReplayStore::Restore(const Caller& caller, const std::string& name,
                                  const RestoreFor& wanted) {
  absl::MutexLock lock(&mutex_);
  Settle();
  OXBOW_RETURN_IF_ERROR(CanWrite());
  OXBOW_RETURN_IF_ERROR(
      CheckStart(state_->owner(), restored_epoch_, restored_start_, caller, wanted));
  OXBOW_RETURN_IF_ERROR(RestoreTo(caller, name, wanted));
  restored_epoch_ = caller.epoch;
  restored_start_ = wanted.start;
  return absl::OkStatus();
}

absl::Status ReplayStore::RestoreTo(const Caller& caller, const std::string& name,
                                    const RestoreFor& wanted) {
  const Owner before = state_->owner();
  const LearnerStep now = state_->clock().step;
  // A store that is new takes any step: its run may be old.
  if (now.value > 0) OXBOW_RETURN_IF_ERROR(CheckStep(now, wanted.step));
  OXBOW_ASSIGN_OR_RETURN(const Claim claim, ClaimOf(before, state_->clock().epoch, caller, wanted));
  if (claim.changes) {
    OXBOW_LOG(Warning) << "replay buffer is taken from its run" << Field("owner", NameOf(before))
                       << Field("by", NameOf(claim.owner));
  }
  const bool empties = claim.changes || (name.empty() && wanted.step.value == 0);
  if (name.empty() && !empties) {
    return Rewind(wanted, {wanted.step, caller.epoch}, claim.owner);
  }
  const fs::path next = directory_->NextLive();
  if (empties) {
    OXBOW_RETURN_IF_ERROR(SetAside(wanted));
  } else {
    OXBOW_ASSIGN_OR_RETURN(const fs::path from, directory_->FindCheckpoint(name));
    OXBOW_RETURN_IF_ERROR(directory_->Clone(from, next));
  }
  OXBOW_RETURN_IF_ERROR(
      SwitchTo(next, /*create=*/empties, [&](ReplayState& state, rocksdb::WriteBatch& batch) {
        if (!state.owner().run.empty() && state.owner().run != claim.owner.run) {
          return absl::NotFoundError(
              absl::StrCat("replay checkpoint ", name, " is of run ", NameOf(state.owner())));
        }
        const LearnerStep step = claim.changes ? wanted.step : state.clock().step;
        state.SetClock({step, caller.epoch}, batch);
        state.SetOwner(claim.owner, batch);
        return absl::OkStatus();
      }));
  if (claim.changes) OXBOW_RETURN_IF_ERROR(directory_->SetCheckpointsAside());
  return TrimToCapacity();
}

// Copies the content aside before it leaves. A store without entries has nothing to lose.
absl::Status ReplayStore::SetAside(const RestoreFor& wanted) {
  if (!state_->LosesEntries(LearnerStep(0))) return absl::OkStatus();
  const std::optional<fs::path> aside = directory_->NextAside();
  if (!aside.has_value()) {
    OXBOW_LOG(Warning) << "replay store is not copied aside: older copies are kept instead, until "
                          "the next checkpoint"
                       << Field("copies", kAsidesMax)
                       << Field("entries", state_->tables().at(replay::kBestTable).size());
    if (wanted.without_copy != nullptr) *wanted.without_copy = true;
    return absl::OkStatus();
  }
  OXBOW_LOG(Info) << "replay store is copied aside" << Field("to", aside->string());
  return CopyTo(*aside);
}

absl::Status ReplayStore::Rewind(const RestoreFor& wanted, const ClockRecord& clock,
                                 const Owner& owner) {
  if (state_->LosesEntries(wanted.step)) OXBOW_RETURN_IF_ERROR(SetAside(wanted));
  rocksdb::WriteBatch batch;
  state_->Rewind(wanted.step, batch);
  state_->SetClock(clock, batch);
  state_->SetOwner(owner, batch);
  return Commit(batch, /*sync=*/true);
}

// Opens the database at `live`, makes `change` in it, makes it the one of the next start, then uses
// it and deletes the others. Until the pointer has moved the old one is untouched.
absl::Status ReplayStore::SwitchTo(const fs::path& live, bool create, const Change& change) {
  LookFirst();
  const auto prepare = [&]() -> absl::StatusOr<std::unique_ptr<Database>> {
    OXBOW_ASSIGN_OR_RETURN(auto database, Database::Open(live, create, options_.environment));
    OXBOW_ASSIGN_OR_RETURN(const auto state, ReplayState::Load(*database, options_.decay,
                                                               options_.tables, options_.segments));
    rocksdb::WriteBatch batch;
    OXBOW_RETURN_IF_ERROR(change(*state, batch));
    state->SetClock(state->clock(), batch);  // A new database is one only with a record.
    OXBOW_RETURN_IF_ERROR(database->Write(batch, /*sync=*/true));
    return database;
  };
  auto prepared = prepare();
  if (!prepared.ok()) {
    std::error_code ignored;
    if (live != live_) fs::remove_all(live, ignored);
    return prepared.status();
  }
  OXBOW_ASSIGN_OR_RETURN(auto state, ReplayState::Load(**prepared, options_.decay, options_.tables,
                                                       options_.segments));
  if (const absl::Status status = directory_->Settle(live); !status.ok()) {
    // The pointer may have moved all the same; the next start must find what is in use.
    if (live != live_) directory_->Settle(live_).IgnoreError();
    return status;
  }
  state_.reset();  // Before its database.
  database_ = *std::move(prepared);
  Take(std::move(state));
  live_ = live;
  write_failed_ = false;
  directory_->Sweep(live);
  return absl::OkStatus();
}

}  // namespace oxbow::buffer
