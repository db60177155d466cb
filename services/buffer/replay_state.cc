// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/replay_state.h"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

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

// A record of which there is one; `into` stays as it is where there is none.
template <typename Decode, typename Record>
absl::Status LoadRecord(const Database& database, const std::string& key, const char* what,
                        const Decode& decode, Record& into) {
  const absl::StatusOr<std::string> bytes = database.Get(database.index(), key);
  if (absl::IsNotFound(bytes.status())) return absl::OkStatus();
  OXBOW_RETURN_IF_ERROR(bytes.status());
  const auto decoded = decode(*bytes);
  if (!decoded.has_value()) return Damaged(what, 0);
  into = *decoded;
  return absl::OkStatus();
}

}  // namespace

EntryParts::EntryParts(const Database& database, SegmentSizes sizes)
    : database_(database),
      sizes_(sizes),
      segments_(1 + (database.segments().List().empty() ? 0 : *database.segments().List().rbegin()),
                sizes.file) {}

void EntryParts::Note(const Entry& entry) {
  if (entry.location.segment == 0) return;
  segments_.Take(entry.id, entry.location, SegmentBytes(entry));
}

void EntryParts::WriteRecord(const Entry& entry, rocksdb::WriteBatch& batch) {
  batch.Put(database_.index(), RecordKey(entry), Encode(entry));
}

void EntryParts::Write(Entry& entry, rocksdb::WriteBatch& batch) {
  const uint32_t count = entry.latent_count;
  OXBOW_CHECK(count == 0 ? entry.latents.empty() : entry.latents.size() % count == 0)
      << entry.latents.size() << " bytes, latents: " << count;
  entry.latent_bytes = count == 0 ? 0 : entry.latents.size() / count;
  entry.header_bytes = entry.header.size();
  entry.conditioning_bytes = entry.conditioning.size();
  batch.Put(database_.index(), HeaderKey(entry.id), entry.header);
  const uint64_t bytes = SegmentBytes(entry);
  const bool among_many = bytes >= sizes_.small_min && batch.GetDataSize() >= sizes_.batch_min;
  if (bytes >= sizes_.entry_min || among_many) {
    entry.location = segments_.Append(entry.id, bytes);
    Entry& large = large_.emplace_back(entry.Record());
    large.conditioning = std::move(entry.conditioning);
    large.latents = std::move(entry.latents);
  } else {
    for (uint32_t i = 0; i < count; ++i) {
      const rocksdb::Slice latent(entry.latents.data() + i * entry.latent_bytes,
                                  entry.latent_bytes);
      batch.Put(database_.payload(), PartKey(entry.id, i), latent);
    }
    if (!entry.conditioning.empty()) {
      batch.Put(database_.payload(), PartKey(entry.id, kConditioningPart), entry.conditioning);
    }
  }
  for (std::string* part : {&entry.header, &entry.conditioning, &entry.latents}) {
    std::string().swap(*part);
  }
}

void EntryParts::Erase(const Entry& entry, rocksdb::WriteBatch& batch) {
  batch.Delete(database_.index(), RecordKey(entry));
  batch.Delete(database_.index(), HeaderKey(entry.id));
  if (entry.location.segment != 0) {
    return segments_.Release(entry.id, entry.location, SegmentBytes(entry));
  }
  for (uint32_t i = 0; i < entry.latent_count; ++i) {
    batch.Delete(database_.payload(), PartKey(entry.id, i));
  }
  batch.Delete(database_.payload(), PartKey(entry.id, kConditioningPart));
}

absl::Status OfferedIds::Load() {
  OXBOW_RETURN_IF_ERROR(
      LoadRecord(database_, ForgottenKey(), "forgotten steps", DecodeForgotten, forgotten_));
  return database_.ForEach('o', [this](const std::string& key, const std::string&) {
    const std::optional<uint64_t> id = KeyInteger(key, 1);
    if (!id.has_value()) return Damaged("offer", 0);
    ids_.insert(EntryId(*id));
    steps_[LearnerStep(*KeyInteger(key, 0))].push_back(EntryId(*id));
    return absl::OkStatus();
  });
}

void OfferedIds::Remember(EntryId id, LearnerStep until, rocksdb::WriteBatch& batch) {
  ids_.insert(id);
  steps_[until].push_back(id);
  batch.Put(database_.index(), OfferedKey(until, id), "");
}

OfferedIds::Steps::iterator OfferedIds::Forget(Steps::iterator step, rocksdb::WriteBatch& batch) {
  for (const EntryId id : step->second) {
    batch.Delete(database_.index(), OfferedKey(step->first, id));
    ids_.erase(id);
  }
  return steps_.erase(step);
}

void OfferedIds::ForgetBefore(LearnerStep step, rocksdb::WriteBatch& batch) {
  while (!steps_.empty() && steps_.begin()->first < step) {
    Forget(steps_.begin(), batch);
  }
  if (step > forgotten_) SetForgotten(step, batch);
}

void OfferedIds::ForgetDownTo(uint64_t most, LearnerStep now, rocksdb::WriteBatch& batch) {
  while (ids_.size() > most && steps_.begin()->first < now) {
    ForgetBefore(LearnerStep(steps_.begin()->first.value + 1), batch);
  }
}

void OfferedIds::SetForgotten(LearnerStep step, rocksdb::WriteBatch& batch) {
  forgotten_ = step;
  batch.Put(database_.index(), ForgottenKey(), Encode(forgotten_));
}

void OfferedIds::Rewind(LearnerStep step, rocksdb::WriteBatch& batch) {
  for (auto at = steps_.lower_bound(step); at != steps_.end();) at = Forget(at, batch);
  if (forgotten_ > step) SetForgotten(step, batch);
}

ReplayState::ReplayState(const Database& database, SegmentSizes sizes)
    : database_(database), parts_(database, sizes), offered_(database) {}

absl::StatusOr<std::unique_ptr<ReplayState>> ReplayState::Load(
    const Database& database, const replay::Decay& decay,
    const std::vector<replay::TablePolicy>& tables, SegmentSizes sizes) {
  std::unique_ptr<ReplayState> state(new ReplayState(database, sizes));
  for (const replay::TablePolicy& table : tables) {
    state->tables_.try_emplace(table.name, table, decay);
  }
  OXBOW_RETURN_IF_ERROR(state->LoadRecords());
  OXBOW_RETURN_IF_ERROR(state->LoadBest());
  OXBOW_RETURN_IF_ERROR(state->LoadDraws());
  OXBOW_RETURN_IF_ERROR(state->LoadQueues(decay));
  return state;
}

absl::Status ReplayState::LoadRecords() {
  OXBOW_RETURN_IF_ERROR(LoadRecord(database_, ClockKey(), "clock", DecodeClock, clock_));
  OXBOW_RETURN_IF_ERROR(LoadRecord(database_, OwnerKey(), "owner", DecodeOwner, owner_));
  return offered_.Load();
}

absl::Status ReplayState::LoadBest() {
  Table& best = tables_.at(replay::kBestTable);
  return database_.ForEach('e', [&](const std::string& key, const std::string& value) {
    const std::optional<Entry> entry = DecodeEntry(key, value);
    const uint64_t id = EntryOfKey(key).value;
    if (!entry.has_value() || !std::isfinite(entry->value())) {
      return Damaged("entry", id);
    }
    parts_.Note(*entry);
    if (entry->retired) {
      retired_[entry->id] = *entry;
      return absl::OkStatus();
    }
    if (best.NewestOfPrompt(entry->prompt) != nullptr) return Damaged("second entry", id);
    best.Add(*entry);
    return absl::OkStatus();
  });
}

absl::Status ReplayState::LoadDraws() {
  return database_.ForEach('d', [this](const std::string& key, const std::string& value) {
    const LearnerStep step(KeyInteger(key, 0).value_or(0));
    const std::optional<replay::Drawn> draw = DecodeDraw(value);
    if (!draw.has_value()) return Damaged("draw", step.value);
    for (const EntryId id : draw->entries) {
      if (Find(id) == nullptr) return Damaged("drawn entry", id.value);
      ++holds_[id];
    }
    draws_[step] = *draw;
    return absl::OkStatus();
  });
}

absl::Status ReplayState::LoadQueues(const replay::Decay& decay) {
  return database_.ForEach('q', [&](const std::string& key, const std::string& value) {
    const std::optional<Entry> entry = DecodeEntry(key, value);
    const EntryId id = EntryOfKey(key);
    if (!entry.has_value() || entry->table == replay::kBestTable || Find(id) != nullptr) {
      return Damaged("queued entry", id.value);
    }
    parts_.Note(*entry);
    const replay::TablePolicy undeclared{.name = entry->table, .capacity = 0};
    tables_.try_emplace(entry->table, undeclared, decay).first->second.Add(*entry);
    next_place_ = entry->place + 1;
    return absl::OkStatus();
  });
}

Table* ReplayState::Holder(EntryId id) {
  for (auto& [_, table] : tables_) {
    if (table.Find(id) != nullptr) return &table;
  }
  return nullptr;
}

const Entry* ReplayState::Find(EntryId id) const {
  for (const auto& [_, table] : tables_) {
    if (const Entry* entry = table.Find(id); entry != nullptr) return entry;
  }
  const auto found = retired_.find(id);
  return found == retired_.end() ? nullptr : &found->second;
}

void ReplayState::Insert(Entry& entry, rocksdb::WriteBatch& batch) {
  Table& table = tables_.at(entry.table);
  entry.place = table.ordered_by_id() ? entry.id.value : next_place_++;
  parts_.Write(entry, batch);
  parts_.WriteRecord(entry, batch);
  table.Add(entry);
}

void ReplayState::Drop(EntryId id, rocksdb::WriteBatch& batch) {
  Table* table = Holder(id);
  OXBOW_CHECK(table != nullptr) << "in no table: " << id;
  Entry entry = table->Remove(id);
  if (!holds_.contains(id)) return parts_.Erase(entry, batch);
  entry.retired = true;
  parts_.WriteRecord(entry, batch);
  retired_[id] = std::move(entry);
}

void ReplayState::Moved(EntryId id, Location from, Location to, rocksdb::WriteBatch& batch) {
  const Entry* entry = Find(id);
  if (entry == nullptr || entry->location != from) return;
  parts_.segments().Release(id, from, SegmentBytes(*entry));
  parts_.segments().Take(id, to, SegmentBytes(*entry));
  if (Table* table = Holder(id); table != nullptr) {
    parts_.WriteRecord(table->Move(id, to), batch);
  } else {
    retired_.at(id).location = to;
    parts_.WriteRecord(retired_.at(id), batch);
  }
}

void ReplayState::RecordDraw(LearnerStep step, replay::Drawn draw, rocksdb::WriteBatch& batch) {
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
        parts_.Erase(found->second, batch);
        retired_.erase(found);
      }
    }
    batch.Delete(database_.index(), DrawKey(draws_.begin()->first));
    draws_.erase(draws_.begin());
  }
}

void ReplayState::CountUse(EntryId id, LearnerStep step, rocksdb::WriteBatch& batch) {
  if (Table* table = Holder(id); table != nullptr) {
    parts_.WriteRecord(table->CountUse(id, step), batch);
  } else if (const auto found = retired_.find(id); found != retired_.end()) {
    ++found->second.uses;
    found->second.last_used = step;
    parts_.WriteRecord(found->second, batch);
  }
}

void ReplayState::Rescore(const Rescored& rescored, rocksdb::WriteBatch& batch) {
  if (Table* table = Holder(rescored.entry); table != nullptr) {
    parts_.WriteRecord(table->Rescore(rescored), batch);
  }
}

bool ReplayState::LosesEntries(LearnerStep step) const {
  return std::any_of(tables_.begin(), tables_.end(), [step](const auto& table) {
    const auto& entries = table.second.entries();
    return std::any_of(entries.begin(), entries.end(),
                       [step](const auto& entry) { return entry.second.birth >= step; });
  });
}

void ReplayState::SetOwner(Owner owner, rocksdb::WriteBatch& batch) {
  if (owner == owner_) return;
  owner_ = std::move(owner);
  batch.Put(database_.index(), OwnerKey(), Encode(owner_));
}

void ReplayState::SetClock(ClockRecord clock, rocksdb::WriteBatch& batch) {
  clock_ = clock;
  batch.Put(database_.index(), ClockKey(), Encode(clock));
}

}  // namespace oxbow::buffer
