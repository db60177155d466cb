// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/reshard.h"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/status_macros.h"
#include "services/buffer/database.h"
#include "services/buffer/replay_directory.h"
#include "services/buffer/replay_state.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBatchBytes = uint64_t{32} << 20;
constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();

struct Source {
  std::unique_ptr<ReplayDirectory> directory;
  std::unique_ptr<Database> database;
  std::unique_ptr<ReplayState> state;
};

absl::StatusOr<Source> OpenSource(const fs::path& path) {
  Source source;
  OXBOW_ASSIGN_OR_RETURN(source.directory, ReplayDirectory::OpenForReading(path));
  OXBOW_ASSIGN_OR_RETURN(const ReplayDirectory::Live live, source.directory->FindLive());
  if (!live.settled) {
    return absl::NotFoundError(absl::StrCat("replay store holds nothing yet: ", path.string()));
  }
  OXBOW_ASSIGN_OR_RETURN(source.database, Database::OpenReadOnly(live.path));
  OXBOW_ASSIGN_OR_RETURN(source.state,
                         ReplayState::Load(*source.database, {}, {replay::BestTable(kAny)}));
  return source;
}

absl::Status CheckNewShards(const std::vector<fs::path>& from, const std::vector<Source>& sources) {
  for (size_t i = 0; i < sources.size(); ++i) {
    const Owner& owner = sources[i].state->owner();
    const Owner& first = sources[0].state->owner();
    if (owner.run != first.run) {
      return absl::FailedPreconditionError(
          absl::StrCat(from[i].string(), " is of run ", NameOf(owner), ", not of ", NameOf(first)));
    }
    if (owner.shards == 0 || (owner.shards == sources.size() && owner.shard == i)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(from[i].string(), " is shard ", owner.shard, " of ", owner.shards,
                     ": name all of them in order, not as shard ", i, " of ", sources.size()));
  }
  return absl::OkStatus();
}

// Removes the rest of a reshard that did not end; kUnavailable while one is under way.
absl::Status RemoveUnfinished(const fs::path& path) {
  if (!fs::exists(path)) return absl::OkStatus();
  OXBOW_RETURN_IF_ERROR(ReplayDirectory::Open(path).status());
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("cannot remove ", path.string(), ": ", error.message()));
}

// One of the new shards. It is written beside its place, as PATH.unfinished.
class Target {
 public:
  static absl::StatusOr<std::unique_ptr<Target>> Make(
      const fs::path& path, const std::vector<replay::TablePolicy>& tables) {
    if (fs::exists(path)) {
      return absl::AlreadyExistsError(absl::StrCat(
          "is there already (an interrupted reshard may have left it): ", path.string()));
    }
    std::unique_ptr<Target> target(new Target);
    target->path_ = target->unfinished_ = path;
    target->unfinished_ += ".unfinished";
    OXBOW_RETURN_IF_ERROR(RemoveUnfinished(target->unfinished_));
    OXBOW_ASSIGN_OR_RETURN(target->directory_, ReplayDirectory::Open(target->unfinished_));
    target->live_ = target->directory_->NextLive();
    OXBOW_ASSIGN_OR_RETURN(target->database_,
                           Database::Open(target->live_, /*create=*/true, nullptr));
    OXBOW_ASSIGN_OR_RETURN(target->state_, ReplayState::Load(*target->database_, {}, tables));
    target->writer_ = target->database_->NewSegmentWriter();
    return target;
  }

  bool HasPrompt(const Entry& entry) const {
    return entry.table == replay::kBestTable &&
           state_->tables().at(entry.table).NewestOfPrompt(entry.prompt) != nullptr;
  }

  // With its parts.
  absl::Status Add(Entry entry) {
    bytes_ += entry.bytes();
    entry.location = {};
    state_->Insert(entry, batch_);
    return bytes_ < kBatchBytes ? absl::OkStatus() : Write();
  }

  void Remember(EntryId id, LearnerStep until) { state_->offered().Remember(id, until, batch_); }

  absl::Status Finish(const ClockRecord& clock, LearnerStep forgotten, Owner owner) {
    state_->offered().ForgetBefore(forgotten, batch_);
    state_->SetClock(clock, batch_);
    state_->SetOwner(std::move(owner), batch_);
    OXBOW_RETURN_IF_ERROR(Write());
    return directory_->Settle(live_);
  }

  // Closes it and moves it to its place. Requires Finish.
  absl::Status Place() {
    writer_.reset();
    state_.reset();
    database_.reset();
    directory_.reset();
    std::error_code error;
    fs::rename(unfinished_, path_, error);
    if (error) {
      return absl::UnknownError(absl::StrCat("cannot rename ", unfinished_.string(), " to ",
                                             path_.string(), ": ", error.message()));
    }
    return SyncDirectory(fs::absolute(path_).parent_path());
  }

 private:
  absl::Status Write() {
    for (const Entry& entry : state_->parts().TakeLarge())
      OXBOW_RETURN_IF_ERROR(writer_->Put(entry));
    OXBOW_RETURN_IF_ERROR(writer_->Sync());
    OXBOW_RETURN_IF_ERROR(database_->Write(batch_, /*sync=*/true));
    batch_.Clear();
    bytes_ = 0;
    return absl::OkStatus();
  }

  fs::path path_, unfinished_;
  fs::path live_;
  std::unique_ptr<ReplayDirectory> directory_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<ReplayState> state_;
  std::unique_ptr<SegmentWriter> writer_;
  rocksdb::WriteBatch batch_;
  uint64_t bytes_ = 0;
};

struct Found {
  const Source* source;
  const Entry* entry;
};

// Best by value, so that of a prompt that was on two shards the better entry comes first; queues in
// their order.
std::vector<Found> AllEntries(const std::vector<Source>& sources) {
  std::vector<Found> all;
  for (const Source& source : sources) {
    for (const auto& [_, table] : source.state->tables()) {
      for (const auto& [place, entry] : table.entries()) all.push_back({&source, &entry});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Found& a, const Found& b) {
    const auto key = [](const Entry& entry) {
      const bool best = entry.table == replay::kBestTable;
      return std::tuple(entry.table, best ? -entry.value() : 0, entry.birth,
                        best ? 0 : entry.place);
    };
    return key(*a.entry) < key(*b.entry);
  });
  return all;
}

// An id is offered to one shard: shards that share one are copies of each other.
absl::Status CheckIds(const std::vector<Found>& all) {
  absl::flat_hash_set<EntryId> ids;
  for (const Found& found : all) {
    if (ids.insert(found.entry->id).second) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("entry ", found.entry->id.value,
                     " is on two of these shards: name each once, and no copy beside it"));
  }
  return absl::OkStatus();
}

std::vector<replay::TablePolicy> TablesIn(const std::vector<Source>& sources) {
  std::vector<replay::TablePolicy> tables = {replay::BestTable(kAny)};
  for (const Source& source : sources) {
    for (const auto& of_source : source.state->tables()) {
      const bool known = std::any_of(tables.begin(), tables.end(), [&](const auto& table) {
        return table.name == of_source.first;
      });
      if (!known) tables.push_back({.name = of_source.first, .capacity = kAny});
    }
  }
  return tables;
}

absl::StatusOr<Entry> WithParts(const Found& found) {
  const Database& database = *found.source->database;
  Entry entry = *found.entry;
  OXBOW_ASSIGN_OR_RETURN(entry.header, database.Header(entry.id));
  OXBOW_ASSIGN_OR_RETURN(entry.conditioning, database.Conditioning(entry));
  OXBOW_ASSIGN_OR_RETURN(entry.latents, database.Latents(entry, 0, entry.latent_count));
  return entry;
}

}  // namespace

absl::StatusOr<ReshardReport> Reshard(const std::vector<fs::path>& from,
                                      const std::vector<fs::path>& to) {
  std::vector<Source> sources;
  for (const fs::path& path : from) {
    OXBOW_ASSIGN_OR_RETURN(Source source, OpenSource(path));
    sources.push_back(std::move(source));
  }
  OXBOW_RETURN_IF_ERROR(CheckNewShards(from, sources));
  const std::vector<Found> all = AllEntries(sources);
  OXBOW_RETURN_IF_ERROR(CheckIds(all));
  const std::vector<replay::TablePolicy> tables = TablesIn(sources);
  std::vector<std::unique_ptr<Target>> targets;
  for (const fs::path& path : to) {
    OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<Target> target, Target::Make(path, tables));
    targets.push_back(std::move(target));
  }
  ReshardReport report;
  for (const Found& found : all) {
    Target& target = *targets[found.entry->prompt.value % targets.size()];
    if (target.HasPrompt(*found.entry)) {
      ++report.left_out;
      continue;
    }
    OXBOW_ASSIGN_OR_RETURN(Entry entry, WithParts(found));
    ++report.entries;
    report.bytes += entry.bytes();
    OXBOW_RETURN_IF_ERROR(target.Add(std::move(entry)));
  }
  ClockRecord clock;
  LearnerStep forgotten;
  std::set<std::pair<LearnerStep, EntryId>> known;
  for (const Source& source : sources) {
    clock.step = std::max(clock.step, source.state->clock().step);
    clock.epoch = std::max(clock.epoch, source.state->clock().epoch);
    forgotten = std::max(forgotten, source.state->offered().forgotten());
    // Shards that were resharded before know the same ids.
    for (const auto& [step, ids] : source.state->offered().steps()) {
      for (const EntryId id : ids) known.emplace(step, id);
    }
  }
  for (const auto& [step, id] : known) {
    for (const auto& target : targets) target->Remember(id, step);
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    OXBOW_RETURN_IF_ERROR(targets[i]->Finish(clock, forgotten,
                                             {.run = sources[0].state->owner().run,
                                              .shards = static_cast<uint32_t>(targets.size()),
                                              .shard = static_cast<uint32_t>(i)}));
  }
  for (const auto& target : targets) OXBOW_RETURN_IF_ERROR(target->Place());
  return report;
}

}  // namespace oxbow::buffer
