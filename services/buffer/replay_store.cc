#include "services/buffer/replay_store.h"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/replay/replacement.h"
#include "services/buffer/database.h"
#include "services/buffer/replay_directory.h"

namespace oxbow::buffer {

absl::StatusOr<std::unique_ptr<ReplayStore>> ReplayStore::Open(Options options) {
  OXBOW_RETURN_IF_ERROR(replay::Validate(options.decay));
  OXBOW_RETURN_IF_ERROR(replay::Validate(options.queues));
  if (options.capacity == 0) {
    return absl::InvalidArgumentError("replay.capacity must be at least 1: 0");
  }
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
  OXBOW_ASSIGN_OR_RETURN(auto state, ReplayState::Load(*database, decay, {}));
  Options options{.directory = path,
                  .capacity = std::max<uint64_t>(1, state->index().size()),
                  .decay = decay,
                  .read_only = true};
  for (const auto& [_, queue] : state->queues()) {
    options.queues.push_back(queue.policy());
    options.queues.back().capacity = queue.size();
  }
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
  OXBOW_ASSIGN_OR_RETURN(state_, ReplayState::Load(*database, options_.decay, options_.queues));
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
    OXBOW_ASSIGN_OR_RETURN(state_, ReplayState::Load(*database_, options_.decay, options_.queues));
  }
  write_failed_ = false;
  OXBOW_LOG(Info) << "replay store writes again" << Field("entries", state_->index().size());
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
  auto state = ReplayState::Load(*database_, options_.decay, options_.queues);
  state_ = state.ok() ? *std::move(state) : nullptr;
  return status;
}

absl::Status ReplayStore::TrimToCapacity() {
  rocksdb::WriteBatch batch;
  while (state_->index().size() > options_.capacity) {
    state_->Drop(state_->index().Lowest()->id, batch);
  }
  for (const auto& [name, queue] : state_->queues()) {
    const uint64_t capacity = Queue(name).ok() ? queue.policy().capacity : 0;
    while (queue.size() > capacity) {
      state_->DropQueued(queue.entries().begin()->second.facts.id, batch);
    }
  }
  return Commit(batch, /*sync=*/true);
}

// Of those that are declared.
absl::StatusOr<const EntryQueue*> ReplayStore::Queue(const std::string& table) const {
  for (const replay::TablePolicy& policy : options_.queues) {
    if (policy.name == table) return &state_->queues().at(table);
  }
  return absl::NotFoundError(absl::StrCat("table is not declared in the buffer's config: ", table));
}

void ReplayStore::Evict(const std::string& table, EntryId id, rocksdb::WriteBatch& batch) {
  state_->DropQueued(id, batch);
  ++queued_[table].evicted;
}

OfferResult ReplayStore::AppendOne(const NewEntry& entry, rocksdb::WriteBatch& batch) {
  const EntryQueue& queue = state_->queues().at(entry.table);
  OfferResult result{Outcome::kInserted, EntryId(), "", true};
  const EntryRecord* same = queue.NewestOfPrompt(entry.facts.prompt);
  if (queue.policy().insert == replay::InsertPolicy::kAppendPerPrompt && same != nullptr) {
    result = {Outcome::kReplaced, same->facts.id, "", true};
    state_->DropQueued(result.replaced, batch);
  }
  state_->Append(entry, batch);
  while (queue.size() > queue.policy().capacity) {
    Evict(entry.table, queue.entries().begin()->second.facts.id, batch);
  }
  return result;
}

OfferResult ReplayStore::DecideOne(const NewEntry& entry, rocksdb::WriteBatch& batch) {
  const replay::EntryFacts& facts = entry.facts;
  const LearnerStep now = state_->clock().step;
  if (state_->WasOffered(facts.id)) return {Outcome::kDuplicate, EntryId(), ""};
  if (!entry.invalid.empty()) return {Outcome::kRejectedInvalid, EntryId(), entry.invalid};
  if (!std::isfinite(facts.reward)) {
    return {Outcome::kRejectedInvalid, EntryId(), absl::StrCat("reward is ", facts.reward)};
  }
  if (replay::AgeAt(now, facts.birth) > options_.remembered_steps) {
    return {Outcome::kRejectedInvalid, EntryId(),
            absl::StrCat("born more than ", options_.remembered_steps,
                         " steps ago: ", facts.birth.value)};
  }
  const bool queued = !entry.table.empty();
  if (queued && !Queue(entry.table).ok()) {
    return {Outcome::kRejectedInvalid, EntryId(),
            absl::StrCat("table is not declared in the buffer's config: ", entry.table)};
  }
  state_->Remember(facts.id, std::max(now, facts.birth), batch);
  if (queued) return AppendOne(entry, batch);
  const replay::Decision decision = replay::Decide(
      state_->index().SituationOf(facts.prompt, facts.reward, now, options_.capacity));
  if (decision.verdict == replay::Verdict::kReject) {
    return {Outcome::kRejectedLower, EntryId(), ""};
  }
  if (decision.verdict == replay::Verdict::kReplace) state_->Drop(decision.victim, batch);
  state_->Insert(entry, batch);
  return decision.verdict == replay::Verdict::kInsert
             ? OfferResult{Outcome::kInserted, EntryId(), ""}
             : OfferResult{Outcome::kReplaced, decision.victim, ""};
}

absl::StatusOr<OfferReport> ReplayStore::Offer(Epoch epoch, std::span<const NewEntry> entries) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(epoch));
  if (state_->remembered() + entries.size() > options_.remembered_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many offers without Advance, ids remembered: ", state_->remembered()));
  }
  rocksdb::WriteBatch batch;
  OfferReport report;
  bool changed = false;
  for (const NewEntry& entry : entries) {
    report.results.push_back(DecideOne(entry, batch));
    report.results.back().queued = !entry.table.empty();
    const Outcome outcome = report.results.back().outcome;
    changed |= outcome == Outcome::kInserted || outcome == Outcome::kReplaced;
  }
  const absl::Duration start = options_.clock->Now();
  // Rejections need no fsync: should a crash forget one, it is decided again.
  OXBOW_RETURN_IF_ERROR(Commit(batch, /*sync=*/changed));
  if (changed) report.sync_time = options_.clock->Now() - start;
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto outcome = static_cast<size_t>(report.results[i].outcome);
    if (entries[i].table.empty()) {
      ++offers_[outcome];
    } else if (Queue(entries[i].table).ok()) {
      ++queued_[entries[i].table].offers[outcome];
    }
  }
  return report;
}

absl::StatusOr<DrawReport> ReplayStore::Draw(Epoch epoch, LearnerStep step, uint64_t count,
                                             uint64_t seed) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(epoch));
  OXBOW_RETURN_IF_ERROR(CheckStep(step));
  const auto drawn = state_->draws().find(step);
  if (drawn != state_->draws().end()) return ViewDraw(drawn->second);
  if (state_->draws().size() >= options_.open_draws_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too many steps hold drawn entries and were not committed: ", options_.open_draws_max));
  }
  const DrawRecord draw = DrawBest(step, count, seed);
  rocksdb::WriteBatch batch;
  state_->RecordDraw(step, draw, batch);
  OXBOW_RETURN_IF_ERROR(Commit(batch, /*sync=*/true));
  return ViewDraw(draw);
}

DrawRecord ReplayStore::DrawBest(LearnerStep step, uint64_t count, uint64_t seed) const {
  std::vector<EntryId> ids;
  std::vector<replay::WeightedEntry> weighted;  // Of priorities at `step`, above the reward floor.
  const bool uniform = options_.draw != replay::DrawPolicy::kPriority;
  for (const auto& [id, facts] : state_->index().entries()) {
    if (!replay::Eligible(facts, step, options_.limits)) continue;
    ids.push_back(id);
    if (uniform) continue;
    const uint64_t age = replay::AgeAt(step, facts.birth);
    const double priority = replay::PriorityAt(options_.decay, facts.reward, age);
    weighted.push_back({id, priority - options_.decay.floor});
  }
  DrawRecord draw{.eligible = ids.size(), .entries = {}};
  draw.entries = uniform ? replay::DrawUniform(std::move(ids), count, seed, step)
                         : replay::DrawWeighted(weighted, count, seed, step);
  return draw;
}

absl::Status ReplayStore::CheckStep(LearnerStep step) const {
  const LearnerStep now = state_->clock().step;
  if (step >= now) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("draw for a committed step: ", step.value, ", the buffer is at ", now.value));
}

absl::StatusOr<DrawReport> ReplayStore::DrawQueued(const std::string& table, Epoch epoch,
                                                   LearnerStep step, uint64_t count,
                                                   uint64_t seed) {
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Begin(epoch));
  OXBOW_RETURN_IF_ERROR(CheckStep(step));
  OXBOW_ASSIGN_OR_RETURN(const EntryQueue* queue, Queue(table));
  std::vector<EntryId> ids;
  for (const auto& [_, entry] : queue->entries()) {
    if (entry.facts.birth < step) ids.push_back(entry.facts.id);
  }
  DrawRecord draw{.eligible = ids.size(), .entries = {}};
  if (queue->policy().draw == replay::DrawPolicy::kUniform) {
    draw.entries = replay::DrawUniform(std::move(ids), count, seed, step);
  } else {
    ids.resize(std::min<uint64_t>(ids.size(), count));
    draw.entries = std::move(ids);
  }
  return ViewDraw(draw);
}

absl::StatusOr<DrawReport> ReplayStore::ViewDraw(const DrawRecord& draw) const {
  DrawReport report;
  report.eligible = draw.eligible;
  for (const EntryId id : draw.entries) {
    OXBOW_ASSIGN_OR_RETURN(EntryView view, View(state_->Find(id).value(), /*conditioning=*/true));
    report.entries.push_back(std::move(view));
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
    if (const auto record = state_->Find(id); record.has_value()) {
      report.used_ages.push_back(replay::AgeAt(step, record->facts.birth));
    }
    state_->CountUse(id, step, batch);
  }
  state_->SetClock({next, clock.epoch}, batch);
  state_->ReleaseDraws(step, batch);
  for (const EntryId id : evict) {
    if (state_->index().Find(id) != nullptr) {
      state_->Drop(id, batch);
      ++report.evicted;
    } else if (state_->QueueOf(id) != nullptr) {
      state_->DropQueued(id, batch);
    }
  }
  for (const auto& [name, queue] : state_->queues()) {
    const uint64_t age_max = queue.policy().age_max;
    while (age_max > 0 && queue.size() > 0) {
      const replay::EntryFacts& oldest = queue.entries().begin()->second.facts;
      if (replay::AgeAt(next, oldest.birth) <= age_max) break;
      Evict(name, oldest.id, batch);
    }
  }
  if (next.value > options_.remembered_steps) {
    state_->ForgetBefore(LearnerStep(next.value - options_.remembered_steps), batch);
  }
  OXBOW_RETURN_IF_ERROR(Commit(batch, /*sync=*/true));
  return report;
}

absl::StatusOr<EntryView> ReplayStore::View(const EntryRecord& record, bool conditioning) const {
  EntryView view;
  view.facts = record.facts;
  view.extent = record.extent;
  view.priority = state_->index().PriorityOf(record.facts, state_->clock().step);
  const EntryId id = record.facts.id;
  OXBOW_ASSIGN_OR_RETURN(view.header, database_->Get(database_->index(), HeaderKey(id)));
  if (!conditioning) return view;
  OXBOW_ASSIGN_OR_RETURN(view.conditioning,
                         database_->Get(database_->payload(), PartKey(id, kConditioningPart)));
  return view;
}

absl::StatusOr<EntryView> ReplayStore::Find(EntryId entry) const {
  absl::ReaderMutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(CheckUsable());
  const std::optional<EntryRecord> record = state_->Find(entry);
  if (!record.has_value()) {
    return absl::NotFoundError(absl::StrCat("replay entry is not in the buffer: ", entry.value));
  }
  return View(*record, /*conditioning=*/true);
}

absl::StatusOr<std::string> ReplayStore::ReadLatents(EntryId entry, uint32_t first,
                                                     uint32_t count) const {
  absl::ReaderMutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(CheckUsable());
  const std::optional<EntryRecord> record = state_->Find(entry);
  if (!record.has_value()) {
    return absl::NotFoundError(absl::StrCat("replay entry is not in the buffer: ", entry.value));
  }
  if (uint64_t{first} + count > record->extent.latents) {
    return absl::OutOfRangeError(absl::StrCat("entry has ", record->extent.latents,
                                              " latents, asked for ", first, " + ", count));
  }
  std::string latents;
  latents.reserve(count * record->extent.latent_bytes);
  for (uint32_t i = first; i < first + count; ++i) {
    OXBOW_ASSIGN_OR_RETURN(const std::string latent,
                           database_->Get(database_->payload(), PartKey(entry, i)));
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
                           ReplayState::Load(*database, options_.decay, options_.queues));
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
                         ReplayState::Load(**prepared, options_.decay, options_.queues));
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
  info.capacity = options_.capacity;
  info.offers = offers_;
  info.tables.push_back(
      {.policy = replay::BestTablePolicy(options_.capacity, options_.draw), .offers = offers_});
  for (const replay::TablePolicy& policy : options_.queues) {
    const auto counted = queued_.find(policy.name);
    info.tables.push_back(counted == queued_.end() ? TableState() : counted->second);
    info.tables.back().policy = policy;
  }
  if (state_ == nullptr) return info;
  const replay::ReplayIndex& index = state_->index();
  info.tables[0].entries = index.size();
  info.tables[0].bytes = state_->live_bytes();
  for (size_t i = 1; i < info.tables.size(); ++i) {
    const EntryQueue& queue = state_->queues().at(info.tables[i].policy.name);
    info.tables[i].entries = queue.size();
    info.tables[i].bytes = queue.bytes();
  }
  info.entries = index.size();
  info.bytes = state_->live_bytes();
  info.retired = state_->retired().size();
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
  if (index.size() == 0) return info;
  info.priority_min = std::numeric_limits<double>::infinity();
  std::vector<double> priorities;
  for (const auto& [_, facts] : index.entries()) {
    const double share = 1.0 / static_cast<double>(index.size());
    const double priority = index.PriorityOf(facts, info.step);
    const double age = static_cast<double>(replay::AgeAt(info.step, facts.birth));
    info.reward_mean += share * facts.reward;
    info.priority_mean += share * priority;
    info.priority_min = std::min(info.priority_min, priority);
    priorities.push_back(priority);
    info.age_mean_steps += share * age;
    info.age_max_steps = std::max(info.age_max_steps, age);
    info.uses_mean += share * static_cast<double>(facts.uses);
  }
  // The smallest that at least `percent` of the entries are at or below.
  const auto percentile = [&](size_t percent) {
    const auto rank = static_cast<ptrdiff_t>((priorities.size() * percent + 99) / 100 - 1);
    std::nth_element(priorities.begin(), priorities.begin() + rank, priorities.end());
    return priorities[rank];
  };
  info.priority_p10 = percentile(10);
  info.priority_p50 = percentile(50);
  info.priority_p90 = percentile(90);
  return info;
}

absl::StatusOr<std::vector<EntryView>> ReplayStore::List(uint64_t limit, EntryId after) const {
  absl::ReaderMutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(CheckUsable());
  std::vector<EntryView> views;
  const auto& entries = state_->index().entries();
  for (auto at = entries.upper_bound(after); at != entries.end() && views.size() < limit; ++at) {
    OXBOW_ASSIGN_OR_RETURN(EntryView view, View(state_->Find(at->first).value(), false));
    views.push_back(std::move(view));
  }
  return views;
}

absl::StatusOr<VerifiedPage> ReplayStore::Verify(const std::string& cursor, uint64_t limit) const {
  absl::ReaderMutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(CheckUsable());
  return VerifyEntries(*database_, cursor, limit);
}

absl::StatusOr<std::vector<EntryView>> ReplayStore::ListQueued(const std::string& table,
                                                               uint64_t limit,
                                                               EntryId after) const {
  absl::ReaderMutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(CheckUsable());
  OXBOW_ASSIGN_OR_RETURN(const EntryQueue* queue, Queue(table));
  std::vector<EntryView> views;
  for (auto at = queue->After(after); at != queue->entries().end() && views.size() < limit; ++at) {
    OXBOW_ASSIGN_OR_RETURN(EntryView view, View(at->second, /*conditioning=*/false));
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace oxbow::buffer
