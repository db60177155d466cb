#include "services/buffer/replay_store.h"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/replay/priority.h"
#include "services/buffer/database.h"
#include "services/buffer/replay_directory.h"

namespace oxbow::buffer {
namespace {

// Rewards, priorities, ages and uses of a table at `info.step`.
void Describe(const Table& table, StoreInfo& info) {
  if (table.size() == 0) return;
  const double share = 1.0 / static_cast<double>(table.size());
  std::vector<double> priorities;
  for (const auto& [_, entry] : table.entries()) {
    const auto age = static_cast<double>(replay::AgeAt(info.step, entry.birth));
    priorities.push_back(table.PriorityOf(entry, info.step));
    info.reward_mean += share * entry.reward;
    info.priority_mean += share * priorities.back();
    info.age_mean_steps += share * age;
    info.age_max_steps = std::max(info.age_max_steps, age);
    info.uses_mean += share * static_cast<double>(entry.uses);
  }
  info.priority_min = *std::min_element(priorities.begin(), priorities.end());
  // The smallest priority that at least `percent` of the entries are at or below.
  const auto percentile = [&](size_t percent) {
    const auto rank = static_cast<ptrdiff_t>((priorities.size() * percent + 99) / 100 - 1);
    std::nth_element(priorities.begin(), priorities.begin() + rank, priorities.end());
    return priorities[static_cast<size_t>(rank)];
  };
  info.priority_p10 = percentile(10);
  info.priority_p50 = percentile(50);
  info.priority_p90 = percentile(90);
}

}  // namespace

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
    OXBOW_RETURN_IF_ERROR(store->SwitchTo(live.path, /*create=*/true, Epoch(0)));
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
  OXBOW_ASSIGN_OR_RETURN(auto state, ReplayState::Load(*database, decay, options.tables));
  const auto declare = [](const Table& table, replay::TablePolicy policy) {
    policy.capacity = std::max<uint64_t>(1, table.size());
    return policy;
  };
  const std::string best = replay::kBestTable;
  options.tables = {declare(state->tables().at(best), replay::BestTable(1))};
  for (const auto& [name, table] : state->tables()) {
    if (name != best) options.tables.push_back(declare(table, table.policy()));
  }
  OXBOW_ASSIGN_OR_RETURN(state, ReplayState::Load(*database, decay, options.tables));
  std::unique_ptr<ReplayStore> store(new ReplayStore(std::move(options), std::move(directory)));
  absl::MutexLock lock(&store->mutex_);
  store->live_ = live.path;
  store->database_ = std::move(database);
  store->state_ = std::move(state);
  return store;
}

ReplayStore::ReplayStore(Options options, std::unique_ptr<ReplayDirectory> directory)
    : options_(std::move(options)), directory_(std::move(directory)) {}

ReplayStore::~ReplayStore() = default;

absl::Status ReplayStore::OpenLive() {
  state_.reset();
  database_.reset();  // RocksDB's own lock: closed before it is opened again.
  OXBOW_ASSIGN_OR_RETURN(auto database,
                         Database::Open(live_, /*create=*/false, options_.environment));
  OXBOW_ASSIGN_OR_RETURN(state_, ReplayState::Load(*database, options_.decay, options_.tables));
  database_ = std::move(database);
  return absl::OkStatus();
}

// Asks RocksDB to go on after a failed write; where it will not, opens the database again, which
// replays its log up to the last whole write. Not before there is room: a database that is closed
// and cannot be opened could not even be read.
absl::Status ReplayStore::Recover() {
  if (database_ == nullptr || !database_->Resume().ok()) {
    OXBOW_RETURN_IF_ERROR(Database::ProbeRoom(live_, options_.environment));
    OXBOW_RETURN_IF_ERROR(OpenLive());
  } else {
    OXBOW_ASSIGN_OR_RETURN(state_, ReplayState::Load(*database_, options_.decay, options_.tables));
  }
  write_failed_ = false;
  OXBOW_LOG(Info) << "replay store writes again"
                  << Field("entries", state_->tables().at(replay::kBestTable).size());
  return absl::OkStatus();
}

absl::Status ReplayStore::CheckUsable() const {
  if (state_ == nullptr) {
    return absl::UnavailableError("replay store could not be reopened after a failed write");
  }
  return absl::OkStatus();
}

absl::Status ReplayStore::Begin(Epoch epoch) {
  if (options_.read_only) {
    return absl::FailedPreconditionError("replay store was opened to look into it only");
  }
  if (write_failed_ || state_ == nullptr) OXBOW_RETURN_IF_ERROR(Recover());
  const ClockRecord clock = state_->clock();
  if (epoch < clock.epoch) {
    return absl::AbortedError(absl::StrCat("call of an older learner, epoch ", epoch.value,
                                           " is fenced by ", clock.epoch.value));
  }
  if (epoch == clock.epoch) return absl::OkStatus();
  rocksdb::WriteBatch batch;
  state_->SetClock({clock.step, epoch}, batch);
  return Commit(batch, /*sync=*/true);
}

absl::Status ReplayStore::Commit(rocksdb::WriteBatch& batch, bool sync) {
  if (batch.Count() == 0) return absl::OkStatus();
  const absl::Status status = database_->Write(batch, sync);
  if (status.ok()) return status;
  // Memory is ahead of the disk now: go back to what the disk says.
  write_failed_ = true;
  auto state = ReplayState::Load(*database_, options_.decay, options_.tables);
  state_ = state.ok() ? *std::move(state) : nullptr;
  return status;
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

absl::StatusOr<OfferReport> ReplayStore::Offer(Epoch epoch, std::vector<Entry> entries) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(epoch));
  if (state_->remembered() + entries.size() > options_.remembered_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many offers without Advance, ids remembered: ", state_->remembered()));
  }
  rocksdb::WriteBatch batch;
  OfferReport report;
  bool changed = false;
  for (Entry& entry : entries) {
    report.results.push_back(DecideOne(entry, batch));
    const Outcome outcome = report.results.back().outcome;
    changed |= outcome == Outcome::kInserted || outcome == Outcome::kReplaced;
  }
  const absl::Duration start = options_.clock->Now();
  // Rejections need no fsync: should a crash forget one, it is decided again.
  OXBOW_RETURN_IF_ERROR(Commit(batch, /*sync=*/changed));
  if (changed) report.sync_time = options_.clock->Now() - start;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!Declared(entries[i].table).ok()) continue;
    ++counts_[entries[i].table].offers[static_cast<size_t>(report.results[i].outcome)];
  }
  return report;
}

absl::StatusOr<DrawReport> ReplayStore::Draw(Epoch epoch, LearnerStep step, uint64_t count,
                                             uint64_t seed, const std::string& table) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(epoch));
  const LearnerStep now = state_->clock().step;
  if (step < now) {
    return absl::AbortedError(
        absl::StrCat("draw for a committed step: ", step.value, ", the buffer is at ", now.value));
  }
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

absl::StatusOr<DrawReport> ReplayStore::Read(const replay::Drawn& drawn) const {
  DrawReport report{.entries = {}, .eligible = drawn.eligible};
  for (const EntryId id : drawn.entries) {
    OXBOW_ASSIGN_OR_RETURN(Entry entry, Read(*state_->Find(id), /*conditioning=*/true));
    report.entries.push_back(std::move(entry));
  }
  return report;
}

absl::StatusOr<AdvanceReport> ReplayStore::Advance(Epoch epoch, LearnerStep step,
                                                   std::span<const EntryId> used,
                                                   std::span<const EntryId> evict) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(epoch));
  if (step.value == std::numeric_limits<uint64_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("step is out of range: ", step.value));
  }
  const LearnerStep next(step.value + 1);
  const ClockRecord clock = state_->clock();
  if (next < clock.step) {
    return absl::AbortedError(
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
  for (const EntryId id : evict) {
    const Entry* entry = state_->Find(id);
    if (entry == nullptr || entry->retired) continue;
    if (entry->table == replay::kBestTable) ++report.evicted;
    state_->Drop(id, batch);
  }
  for (const auto& [_, table] : state_->tables()) {
    while (const Entry* old = table.TooOld(next)) Evict(table, old->id, batch);
  }
  if (next.value > options_.remembered_steps) {
    state_->ForgetBefore(LearnerStep(next.value - options_.remembered_steps), batch);
  }
  OXBOW_RETURN_IF_ERROR(Commit(batch, /*sync=*/true));
  return report;
}

absl::StatusOr<Entry> ReplayStore::Read(Entry record, bool conditioning) const {
  const uint64_t age = replay::AgeAt(state_->clock().step, record.birth);
  record.priority = replay::PriorityAt(options_.decay, record.reward, age);
  OXBOW_ASSIGN_OR_RETURN(record.header, database_->Get(database_->index(), HeaderKey(record.id)));
  if (!conditioning) return record;
  OXBOW_ASSIGN_OR_RETURN(
      record.conditioning,
      database_->Get(database_->payload(), PartKey(record.id, kConditioningPart)));
  return record;
}

absl::StatusOr<const Entry*> ReplayStore::Record(EntryId id) const {
  OXBOW_RETURN_IF_ERROR(CheckUsable());
  const Entry* entry = state_->Find(id);
  if (entry != nullptr) return entry;
  return absl::NotFoundError(absl::StrCat("replay entry is not in the buffer: ", id.value));
}

absl::StatusOr<Entry> ReplayStore::Find(EntryId id) const {
  absl::ReaderMutexLock lock(&mutex_);
  OXBOW_ASSIGN_OR_RETURN(const Entry* entry, Record(id));
  return Read(*entry, /*conditioning=*/true);
}

absl::StatusOr<std::string> ReplayStore::ReadLatents(EntryId id, uint32_t first,
                                                     uint32_t count) const {
  absl::ReaderMutexLock lock(&mutex_);
  OXBOW_ASSIGN_OR_RETURN(const Entry* entry, Record(id));
  if (uint64_t{first} + count > entry->latent_count) {
    return absl::OutOfRangeError(absl::StrCat("entry has ", entry->latent_count,
                                              " latents, asked for ", first, " + ", count));
  }
  std::string latents;
  latents.reserve(count * entry->latent_bytes);
  for (uint32_t i = first; i < first + count; ++i) {
    OXBOW_ASSIGN_OR_RETURN(const std::string latent,
                           database_->Get(database_->payload(), PartKey(id, i)));
    latents += latent;
  }
  return latents;
}

absl::Status ReplayStore::Checkpoint(Epoch epoch, const std::string& name, uint64_t keep) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(epoch));
  OXBOW_ASSIGN_OR_RETURN(const std::filesystem::path path, directory_->NextCheckpoint(name));
  if (absl::Status status = database_->CopyTo(path); !status.ok()) {
    write_failed_ = true;  // It flushes first, so a full disk stops RocksDB here too.
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
    std::filesystem::remove_all(path.string() + ".tmp", ignored);
    return status;
  }
  return directory_->Publish(path, keep);
}

absl::Status ReplayStore::Restore(Epoch epoch, const std::string& name) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(epoch));
  const std::filesystem::path next = directory_->NextLive();
  if (!name.empty()) {
    OXBOW_ASSIGN_OR_RETURN(const std::filesystem::path from, directory_->FindCheckpoint(name));
    OXBOW_RETURN_IF_ERROR(directory_->Clone(from, next));
  }
  OXBOW_RETURN_IF_ERROR(SwitchTo(next, /*create=*/name.empty(), epoch));
  return TrimToCapacity();
}

// Opens the database at `live`, writes the epoch into it, makes it the one of the next start, then
// uses it and deletes the others. Until the pointer has moved the old one is untouched.
absl::Status ReplayStore::SwitchTo(const std::filesystem::path& live, bool create, Epoch epoch) {
  const auto prepare = [&]() -> absl::StatusOr<std::unique_ptr<Database>> {
    OXBOW_ASSIGN_OR_RETURN(auto database, Database::Open(live, create, options_.environment));
    OXBOW_ASSIGN_OR_RETURN(const auto state,
                           ReplayState::Load(*database, options_.decay, options_.tables));
    rocksdb::WriteBatch batch;
    state->SetClock({state->clock().step, std::max(epoch, state->clock().epoch)}, batch);
    OXBOW_RETURN_IF_ERROR(database->Write(batch, /*sync=*/true));
    return database;
  };
  auto prepared = prepare();
  if (!prepared.ok()) {
    std::error_code ignored;
    if (live != live_) std::filesystem::remove_all(live, ignored);
    return prepared.status();
  }
  OXBOW_ASSIGN_OR_RETURN(auto state,
                         ReplayState::Load(**prepared, options_.decay, options_.tables));
  if (const absl::Status status = directory_->Settle(live); !status.ok()) {
    // The pointer may have moved all the same; the next start must find what is in use.
    if (live != live_) directory_->Settle(live_).IgnoreError();
    return status;
  }
  state_ = std::move(state);
  database_ = *std::move(prepared);
  live_ = live;
  write_failed_ = false;
  directory_->Sweep(live);
  return absl::OkStatus();
}

StoreInfo ReplayStore::Info() const {
  absl::ReaderMutexLock lock(&mutex_);
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
  if (state_ == nullptr) return info;
  info.retired = state_->retired();
  info.disk_bytes = database_->disk_bytes();
  const Database::Pressure pressure = database_->pressure();
  info.writes_stopped = pressure.writes_stopped;
  info.compaction_pending_bytes = pressure.compaction_pending_bytes;
  info.stall_seconds = pressure.stall_seconds;
  std::error_code ignored;
  const std::filesystem::space_info space = std::filesystem::space(options_.directory, ignored);
  if (!ignored) info.disk_free_bytes = space.available;
  info.step = state_->clock().step;
  info.epoch = state_->clock().epoch;
  Describe(state_->tables().at(replay::kBestTable), info);
  return info;
}

absl::StatusOr<std::vector<Entry>> ReplayStore::List(uint64_t limit, EntryId after,
                                                     const std::string& table) const {
  absl::ReaderMutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(CheckUsable());
  OXBOW_ASSIGN_OR_RETURN(const Table* listed, Declared(table));
  std::vector<Entry> entries;
  for (const Entry* record : listed->After(after, limit)) {
    OXBOW_ASSIGN_OR_RETURN(Entry entry, Read(*record, /*conditioning=*/false));
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::StatusOr<VerifiedPage> ReplayStore::Verify(const std::string& cursor, uint64_t limit) const {
  absl::ReaderMutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(CheckUsable());
  return VerifyEntries(*database_, cursor, limit);
}

}  // namespace oxbow::buffer
