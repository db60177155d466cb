// SPDX-License-Identifier: Apache-2.0
// Offers: decided one after another under the lock, written together without it.
//
//   open_       what was decided since the last write began
//   writing_    a thread writes: large entries into segments, fsync, then the batch, fsync
//   told_       what is written, until a thread has told its callers: the next write goes on
//               meanwhile
//
// An offer is decided on what those before it will have made of the store. Where a write fails,
// all that was decided since fails with it, and memory goes back to what the disk says. A caller
// that waits for its offer writes it when nobody else does; a thread writes the other offers.
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "services/buffer/database.h"
#include "services/buffer/replay_directory.h"
#include "services/buffer/replay_store.h"

namespace oxbow::buffer {

struct ReplayStore::Group {
  absl::Status status;  // The outcome of the write.
  struct Offer {
    OfferReport report;
    std::vector<std::string> tables;  // One per result.
    Offered done;
  };
  rocksdb::WriteBatch batch;
  std::vector<Entry> large;
  std::vector<EntryId> entries;  // That enter with it.
  std::vector<uint64_t> dead;    // Segments that nothing needs once it is written.
  bool sync = false;
  bool awaited = true;  // The caller waits, and writes it if nobody else does.
  std::vector<Offer> offers;
};

ReplayStore::ReplayStore(Options options, std::unique_ptr<ReplayDirectory> directory)
    : options_(std::move(options)), directory_(std::move(directory)) {}

ReplayStore::~ReplayStore() {
  std::thread groups, teller;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    groups = std::move(groups_);
    teller = std::move(teller_);
  }
  if (groups.joinable()) groups.join();
  {
    absl::MutexLock lock(&mutex_);
    all_written_ = true;
  }
  if (teller.joinable()) teller.join();
}

// Decides an offer and adds it to the open group. `waits`: the caller will see that it is written.
absl::Status ReplayStore::Enter(const Caller& caller, std::vector<Entry>& entries, Offered& done,
                                bool waits) {
  const auto welcome = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return settling_ == 0; };
  mutex_.Await(absl::Condition(&welcome));
  OXBOW_RETURN_IF_ERROR(CanWrite());  // It may write the open group: before that is taken.
  if (open_ == nullptr) open_ = std::make_unique<Group>();
  Group& group = *open_;
  const uint32_t before = group.batch.Count();
  OXBOW_RETURN_IF_ERROR(CheckIn(caller, group.batch));
  group.sync |= group.batch.Count() > before;
  OXBOW_RETURN_IF_ERROR(MakeRoomForIds(entries.size(), group.batch));
  Group::Offer& offer = group.offers.emplace_back();
  for (Entry& entry : entries) {
    offer.report.results.push_back(DecideOne(entry, group.batch));
    offer.tables.push_back(entry.table);
    const Outcome outcome = offer.report.results.back().outcome;
    if (outcome != Outcome::kInserted && outcome != Outcome::kReplaced) continue;
    group.entries.push_back(entry.id);
    unsettled_.insert(entry.id);
    // Rejections need no fsync: should a crash forget one, it is decided again.
    group.sync = true;
  }
  for (Entry& large : state_->TakeLarge()) group.large.push_back(std::move(large));
  offer.done = std::move(done);
  group.awaited &= waits;
  return absl::OkStatus();
}

absl::StatusOr<OfferReport> ReplayStore::Offer(const Caller& caller, std::vector<Entry> entries) {
  std::optional<absl::StatusOr<OfferReport>> answer;
  Offered done = [&](absl::StatusOr<OfferReport> report) {
    absl::MutexLock lock(&mutex_);
    answer = std::move(report);
  };
  absl::MutexLock lock(&mutex_);
  OXBOW_RETURN_IF_ERROR(Enter(caller, entries, done, /*waits=*/true));
  const auto ready = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return answer.has_value() || (!writing_ && open_ != nullptr);
  };
  while (true) {
    mutex_.Await(absl::Condition(&ready));
    if (answer.has_value()) break;
    WriteGroup();
  }
  CompactSegments();
  return *std::move(answer);
}

void ReplayStore::OfferAsync(const Caller& caller, std::vector<Entry> entries, Offered done) {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = Enter(caller, entries, done, /*waits=*/false);
    if (status.ok() && !groups_.joinable()) {
      groups_ = std::thread([this] { WriteGroups(); });
      teller_ = std::thread([this] { TellCallers(); });
    }
  }
  if (!status.ok()) done(status);
}

void ReplayStore::WriteGroups() {
  absl::MutexLock lock(&mutex_);
  const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !writing_ && (stopping_ || (open_ != nullptr && !open_->awaited));
  };
  while (true) {
    mutex_.Await(absl::Condition(&due));
    if (open_ != nullptr) {
      WriteGroup();
      CompactSegments();
    } else if (stopping_) {
      return;
    }
  }
}

void ReplayStore::Tell(Group& group) {
  for (Group::Offer& offer : group.offers) {
    offer.done(group.status.ok() ? absl::StatusOr<OfferReport>(std::move(offer.report))
                                 : group.status);
  }
}

void ReplayStore::TellCallers() {
  absl::MutexLock lock(&mutex_);
  const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return all_written_ || !told_.empty();
  };
  while (true) {
    mutex_.Await(absl::Condition(&due));
    if (told_.empty()) return;
    const std::vector<std::unique_ptr<Group>> groups = std::exchange(told_, {});
    mutex_.Unlock();
    for (const auto& group : groups) Tell(*group);
    mutex_.Lock();
  }
}

absl::Status ReplayStore::WriteToDisk(Group& group) {
  if (!group.large.empty() && writer_ == nullptr) writer_ = database_->NewSegmentWriter();
  for (const Entry& entry : group.large) OXBOW_RETURN_IF_ERROR(writer_->Put(entry));
  if (!group.large.empty()) OXBOW_RETURN_IF_ERROR(writer_->Sync());
  if (group.batch.Count() > 0) OXBOW_RETURN_IF_ERROR(database_->Write(group.batch, group.sync));
  for (const uint64_t segment : group.dead) database_->segments().Delete(segment);
  return absl::OkStatus();
}

// Counts what a group has done that is on the disk.
void ReplayStore::Settled(Group& group, absl::Duration took) {
  for (const EntryId entry : group.entries) unsettled_.erase(entry);
  for (Group::Offer& offer : group.offers) {
    if (group.sync && &offer == &group.offers.front()) offer.report.sync_time = took;
    offer.report.together = group.offers.size();
    for (size_t i = 0; i < offer.tables.size(); ++i) {
      if (!Declared(offer.tables[i]).ok()) continue;
      const auto outcome = static_cast<size_t>(offer.report.results[i].outcome);
      ++counts_[offer.tables[i]].offers[outcome];
    }
  }
}

// Writes the open group. Its callers are told by a thread of their own, in the order of their
// offers; where all of them wait, which have no order, here. Requires that nobody writes.
void ReplayStore::WriteGroup() {
  if (open_ == nullptr) return;
  std::vector<std::unique_ptr<Group>> done;
  done.push_back(std::move(open_));
  Group& group = *done.front();
  if (state_ != nullptr) group.dead = state_->segments().TakeDead();
  writing_ = true;
  mutex_.Unlock();
  const absl::Duration start = options_.clock->Now();
  const absl::Status status = WriteToDisk(group);
  const absl::Duration took = options_.clock->Now() - start;
  mutex_.Lock();
  if (status.ok()) {
    Settled(group, took);
  } else {
    write_failed_ = true;
    if (open_ != nullptr) done.push_back(std::move(open_));  // Decided on what is not there.
    Load().IgnoreError();
  }
  std::vector<std::unique_ptr<Group>> waited_for;
  for (auto& each : done) {
    each->status = status;
    (each->awaited ? waited_for : told_).push_back(std::move(each));
  }
  if (!waited_for.empty()) {
    mutex_.Unlock();
    for (const auto& each : waited_for) Tell(*each);
    mutex_.Lock();
  }
  writing_ = false;
}

// All that was offered is durable, and nothing else is offered while the lock is held.
void ReplayStore::Settle() {
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !writing_; };
  ++settling_;
  mutex_.Await(absl::Condition(&idle));
  while (open_ != nullptr) {
    WriteGroup();
    mutex_.Await(absl::Condition(&idle));
  }
  --settling_;
}

struct ReplayStore::Copied {
  std::vector<std::pair<Entry, Location>> entries;  // As they were, and where they are now.
  std::vector<EntryId> damaged;
};

absl::StatusOr<ReplayStore::Copied> ReplayStore::CopyEntries(const std::vector<Entry>& records,
                                                             uint64_t segment) {
  const std::unique_ptr<SegmentWriter> writer = database_->NewSegmentWriter();
  Copied copied;
  Location to{segment, 0};
  for (const Entry& record : records) {
    const absl::StatusOr<std::string> raw = database_->segments().Raw(record);
    if (absl::IsDataLoss(raw.status())) {
      copied.damaged.push_back(record.id);
      continue;
    }
    OXBOW_RETURN_IF_ERROR(raw.status());
    OXBOW_RETURN_IF_ERROR(writer->PutRaw(to, *raw));
    copied.entries.emplace_back(record, to);
    to.offset += raw->size();
  }
  OXBOW_RETURN_IF_ERROR(writer->Sync());
  return copied;
}

// Copies the entries that stay out of segments most of whose entries are gone. Offers are decided
// meanwhile, and what else changes the store waits for one segment's worth of bytes.
void ReplayStore::CompactSegments() {
  if (writing_ || write_failed_ || state_ == nullptr || options_.read_only) return;
  SegmentUse& use = state_->segments();
  if (copies_from_ > 0 && use.dead_bytes() < copies_from_) return;
  std::vector<Entry> records;
  for (const uint64_t segment : use.WorthCopying()) {
    for (const EntryId id : use.EntriesOf(segment)) {
      if (!unsettled_.contains(id)) records.push_back(*state_->Find(id));
    }
  }
  if (records.empty()) return;
  std::sort(records.begin(), records.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.location.segment, a.location.offset) <
           std::pair(b.location.segment, b.location.offset);
  });
  const uint64_t segment = use.NextNumber();
  writing_ = true;
  mutex_.Unlock();
  const absl::StatusOr<Copied> copied = CopyEntries(records, segment);
  mutex_.Lock();
  writing_ = false;
  if (!copied.ok()) {
    // Not again before another segment's worth is dead.
    copies_from_ = use.dead_bytes() + options_.segments.file;
    database_->segments().Delete(segment);
    OXBOW_LOG(Warning) << "replay segments could not be compacted"
                       << Field("error", std::string(copied.status().message()));
    return;
  }
  if (open_ == nullptr) open_ = std::make_unique<Group>();
  open_->sync = true;
  for (const auto& [record, to] : copied->entries) {
    state_->Moved(record.id, record.location, to, open_->batch);
  }
  if (!use.Holds(segment)) database_->segments().Delete(segment);
  OXBOW_LOG(Debug) << "replay segments compacted" << Field("entries", copied->entries.size());
  WriteGroup();
  EvictDamaged(copied->damaged);
}

}  // namespace oxbow::buffer
