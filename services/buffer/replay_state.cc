#include "services/buffer/replay_state.h"

#include <rocksdb/write_batch.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "services/buffer/database.h"

namespace oxbow::buffer {
namespace {

absl::Status Damaged(const char* what, uint64_t id) {
  return absl::DataLossError(
      absl::StrCat("replay store is damaged or of another version: ", what, " ", id));
}

}  // namespace

ReplayState::ReplayState(const Database& database, const replay::Decay& decay)
    : database_(database), index_(decay) {}

absl::StatusOr<std::unique_ptr<ReplayState>> ReplayState::Load(
    const Database& database, const replay::Decay& decay,
    const std::vector<replay::TablePolicy>& queues) {
  std::unique_ptr<ReplayState> state(new ReplayState(database, decay));
  for (const replay::TablePolicy& queue : queues) state->queues_.emplace(queue.name, queue);
  const absl::StatusOr<std::string> clock = database.Get(database.index(), ClockKey());
  if (clock.ok()) {
    const std::optional<ClockRecord> decoded = DecodeClock(*clock);
    if (!decoded.has_value()) return Damaged("clock", 0);
    state->clock_ = *decoded;
  } else if (!absl::IsNotFound(clock.status())) {
    return clock.status();
  }
  OXBOW_RETURN_IF_ERROR(state->LoadEntries());
  OXBOW_RETURN_IF_ERROR(state->LoadDraws());
  OXBOW_RETURN_IF_ERROR(state->LoadOffered());
  OXBOW_RETURN_IF_ERROR(state->LoadQueues());
  return state;
}

absl::Status ReplayState::LoadEntries() {
  return database_.ForEach('e', [this](const std::string& key, const std::string& value) {
    const EntryId id(KeyInteger(key, 0).value_or(0));
    const std::optional<EntryRecord> record = DecodeEntry(id, value);
    if (!record.has_value() || !std::isfinite(record->facts.reward)) {
      return Damaged("entry", id.value);
    }
    if (record->retired) {
      retired_[id] = *record;
      return absl::OkStatus();
    }
    if (index_.OfPrompt(record->facts.prompt) != nullptr) return Damaged("second entry", id.value);
    index_.Add(record->facts);
    live_extents_[id] = record->extent;
    live_bytes_ += record->extent.bytes();
    return absl::OkStatus();
  });
}

absl::Status ReplayState::LoadDraws() {
  return database_.ForEach('d', [this](const std::string& key, const std::string& value) {
    const LearnerStep step(KeyInteger(key, 0).value_or(0));
    const std::optional<DrawRecord> draw = DecodeDraw(value);
    if (!draw.has_value()) return Damaged("draw", step.value);
    for (const EntryId id : draw->entries) {
      if (!Find(id).has_value()) return Damaged("drawn entry", id.value);
      ++holds_[id];
    }
    draws_[step] = *draw;
    return absl::OkStatus();
  });
}

absl::Status ReplayState::LoadOffered() {
  return database_.ForEach('o', [this](const std::string& key, const std::string&) {
    const std::optional<uint64_t> id = KeyInteger(key, 1);
    if (!id.has_value()) return Damaged("offer", 0);
    offered_.insert(EntryId(*id));
    offered_until_[LearnerStep(*KeyInteger(key, 0))].push_back(EntryId(*id));
    return absl::OkStatus();
  });
}

absl::Status ReplayState::LoadQueues() {
  return database_.ForEach('q', [this](const std::string& key, const std::string& value) {
    const uint64_t place = KeyInteger(key, 0).value_or(0);
    const EntryId id(KeyInteger(key, 1).value_or(0));
    const std::optional<QueuedRecord> queued = DecodeQueued(id, value);
    if (!queued.has_value() || Find(id).has_value()) return Damaged("queued entry", id.value);
    queues_.try_emplace(queued->table, replay::TablePolicy{.name = queued->table})
        .first->second.Add(place, queued->record);
    next_place_ = place + 1;
    return absl::OkStatus();
  });
}

const EntryQueue* ReplayState::QueueOf(EntryId id) const {
  for (const auto& [_, queue] : queues_) {
    if (queue.Find(id) != nullptr) return &queue;
  }
  return nullptr;
}

std::optional<EntryRecord> ReplayState::Find(EntryId id) const {
  if (const replay::EntryFacts* facts = index_.Find(id); facts != nullptr) {
    return EntryRecord{*facts, live_extents_.at(id), false};
  }
  if (const auto found = retired_.find(id); found != retired_.end()) return found->second;
  const EntryQueue* queue = QueueOf(id);
  return queue == nullptr ? std::nullopt : std::optional(*queue->Find(id));
}

// Its parts but for the record.
EntryExtent ReplayState::Write(const NewEntry& entry, rocksdb::WriteBatch& batch) {
  const uint32_t count = entry.latent_count;
  OXBOW_CHECK(count == 0 ? entry.latents.empty() : entry.latents.size() % count == 0)
      << entry.latents.size() << " bytes, latents: " << count;
  const EntryId id = entry.facts.id;
  const EntryExtent extent{count, count == 0 ? 0 : entry.latents.size() / count,
                           entry.header.size(), entry.conditioning.size()};
  const std::string_view latents = entry.latents;
  for (uint32_t i = 0; i < extent.latents; ++i) {
    const std::string_view latent = latents.substr(i * extent.latent_bytes, extent.latent_bytes);
    batch.Put(database_.payload(), PartKey(id, i), rocksdb::Slice(latent.data(), latent.size()));
  }
  batch.Put(database_.payload(), PartKey(id, kConditioningPart), entry.conditioning);
  batch.Put(database_.index(), HeaderKey(id), entry.header);
  return extent;
}

void ReplayState::Insert(const NewEntry& entry, rocksdb::WriteBatch& batch) {
  const EntryId id = entry.facts.id;
  const EntryExtent extent = Write(entry, batch);
  index_.Add(entry.facts);
  live_extents_[id] = extent;
  live_bytes_ += extent.bytes();
  batch.Put(database_.index(), EntryKey(id), Encode(EntryRecord{entry.facts, extent, false}));
}

void ReplayState::Append(const NewEntry& entry, rocksdb::WriteBatch& batch) {
  const EntryRecord record{entry.facts, Write(entry, batch), false};
  const uint64_t place = next_place_++;
  queues_.at(entry.table).Add(place, record);
  batch.Put(database_.index(), QueuedKey(place, entry.facts.id),
            Encode(QueuedRecord{entry.table, record}));
}

void ReplayState::DropQueued(EntryId id, rocksdb::WriteBatch& batch) {
  const EntryQueue* holder = QueueOf(id);
  OXBOW_CHECK(holder != nullptr) << "in no queue: " << id;
  EntryQueue& queue = queues_.at(holder->policy().name);
  const EntryRecord record = *queue.Find(id);
  batch.Delete(database_.index(), QueuedKey(queue.Remove(id), id));
  Erase(record, batch);
}

void ReplayState::Drop(EntryId id, rocksdb::WriteBatch& batch) {
  std::optional<EntryRecord> record = Find(id);
  OXBOW_CHECK(record.has_value() && !record->retired) << "not live: " << id;
  index_.Remove(id);
  live_extents_.erase(id);
  live_bytes_ -= record->extent.bytes();
  if (holds_.contains(id)) {
    record->retired = true;
    retired_[id] = *record;
    batch.Put(database_.index(), EntryKey(id), Encode(*record));
  } else {
    Erase(*record, batch);
  }
}

void ReplayState::Erase(const EntryRecord& record, rocksdb::WriteBatch& batch) {
  const EntryId id = record.facts.id;
  batch.Delete(database_.index(), EntryKey(id));
  batch.Delete(database_.index(), HeaderKey(id));
  for (uint32_t i = 0; i < record.extent.latents; ++i) {
    batch.Delete(database_.payload(), PartKey(id, i));
  }
  batch.Delete(database_.payload(), PartKey(id, kConditioningPart));
}

void ReplayState::Remember(EntryId id, LearnerStep until, rocksdb::WriteBatch& batch) {
  offered_.insert(id);
  offered_until_[until].push_back(id);
  batch.Put(database_.index(), OfferedKey(until, id), "");
}

void ReplayState::ForgetBefore(LearnerStep step, rocksdb::WriteBatch& batch) {
  while (!offered_until_.empty() && offered_until_.begin()->first < step) {
    const auto& [until, ids] = *offered_until_.begin();
    for (const EntryId id : ids) {
      batch.Delete(database_.index(), OfferedKey(until, id));
      offered_.erase(id);
    }
    offered_until_.erase(offered_until_.begin());
  }
}

bool ReplayState::WasOffered(EntryId id) const {
  return offered_.contains(id) || Find(id).has_value();
}

void ReplayState::RecordDraw(LearnerStep step, DrawRecord draw, rocksdb::WriteBatch& batch) {
  OXBOW_CHECK(draws_.count(step) == 0) << "drawn twice: " << step;
  for (const EntryId id : draw.entries) ++holds_[id];
  batch.Put(database_.index(), DrawKey(step), Encode(draw));
  draws_[step] = std::move(draw);
}

void ReplayState::ReleaseDraws(LearnerStep last, rocksdb::WriteBatch& batch) {
  while (!draws_.empty() && draws_.begin()->first <= last) {
    for (const EntryId id : draws_.begin()->second.entries) {
      if (--holds_.at(id) > 0) continue;
      holds_.erase(id);
      if (const auto found = retired_.find(id); found != retired_.end()) {
        Erase(found->second, batch);
        retired_.erase(found);
      }
    }
    batch.Delete(database_.index(), DrawKey(draws_.begin()->first));
    draws_.erase(draws_.begin());
  }
}

void ReplayState::CountUse(EntryId id, LearnerStep step, rocksdb::WriteBatch& batch) {
  if (index_.Find(id) != nullptr) {
    const replay::EntryFacts& facts = index_.CountUse(id, step);
    batch.Put(database_.index(), EntryKey(id), Encode({facts, live_extents_.at(id), false}));
  } else if (const auto found = retired_.find(id); found != retired_.end()) {
    ++found->second.facts.uses;
    found->second.facts.last_used = step;
    batch.Put(database_.index(), EntryKey(id), Encode(found->second));
  } else if (const EntryQueue* holder = QueueOf(id); holder != nullptr) {
    EntryQueue& queue = queues_.at(holder->policy().name);
    const uint64_t place = queue.CountUse(id, step);
    batch.Put(database_.index(), QueuedKey(place, id),
              Encode(QueuedRecord{queue.policy().name, *queue.Find(id)}));
  }
}

void ReplayState::SetClock(ClockRecord clock, rocksdb::WriteBatch& batch) {
  clock_ = clock;
  batch.Put(database_.index(), ClockKey(), Encode(clock));
}

}  // namespace oxbow::buffer
