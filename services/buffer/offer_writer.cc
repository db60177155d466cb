// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/offer_writer.h"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/replay/priority.h"

namespace oxbow::buffer {
namespace {

// The reason why an entry cannot enter any table; empty: it may.
std::string Fault(LiveReplay& live, const Entry& entry) {
  ReplayState& state = live.state();
  const uint64_t steps = live.options().remembered_steps;
  const LearnerStep now = state.clock().step;
  if (!entry.invalid.empty()) return entry.invalid;
  if (!std::isfinite(entry.reward)) return absl::StrCat("reward is ", entry.reward);
  if (replay::AgeAt(now, entry.birth) > steps) {
    return absl::StrCat("born more than ", steps, " steps ago: ", entry.birth.value);
  }
  if (entry.birth < state.offered().forgotten()) {
    return absl::StrCat("born before step ", state.offered().forgotten().value,
                        ", whose ids had to be forgotten: ", entry.birth.value);
  }
  if (const absl::Status ahead = CheckStep(now, entry.birth); !ahead.ok()) {
    return absl::StrCat("birth: ", ahead.message());
  }
  return std::string(Declared(state, entry.table).status().message());
}

// Decides, and changes the state and the batch accordingly: rules of the store around those of
// core/replay. Requires a state that may change.
OfferResult DecideOffer(LiveReplay& live, Entry& entry, rocksdb::WriteBatch& batch) {
  ReplayState& state = live.state();
  OfferResult result{.entry = entry.id};
  if (state.offered().contains(entry.id) || state.Find(entry.id) != nullptr) {
    result.outcome = Outcome::kDuplicate;
    return result;
  }
  result.error = Fault(live, entry);
  if (!result.error.empty()) return result;
  const Table& table = **Declared(state, entry.table);
  const LearnerStep now = state.clock().step;
  state.offered().Remember(entry.id, std::max(now, entry.birth), batch);
  const replay::Decision decision = table.Decide(entry, now);
  if (decision.verdict == replay::Verdict::kReject) {
    result.outcome = Outcome::kRejectedLower;
    return result;
  }
  if (decision.verdict == replay::Verdict::kReplace) state.Drop(decision.victim, batch);
  state.Insert(entry, batch);
  while (table.size() > table.policy().capacity) Evict(live, table, table.NextToLeave()->id, batch);
  result.replaced = decision.victim;
  result.outcome =
      decision.verdict == replay::Verdict::kInsert ? Outcome::kInserted : Outcome::kReplaced;
  return result;
}

// Forgets ids until `count` more can be remembered. kOutOfRange where the present step alone has
// too many: its offers may still be repeated.
absl::Status MakeRoomForIds(LiveReplay& live, uint64_t count, rocksdb::WriteBatch& batch) {
  ReplayState& state = live.state();
  const uint64_t most = live.options().remembered_max;
  if (state.offered().size() + count <= most) return absl::OkStatus();
  state.offered().ForgetDownTo(most - std::min(most, count), state.clock().step, batch);
  if (state.offered().size() + count <= most) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("more entries were offered in one step than ids can be "
                   "remembered: ",
                   state.offered().size() + count, ", limit ", most));
}

}  // namespace

struct OfferWriter::Group {
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

OfferWriter::OfferWriter(absl::Mutex& mutex, LiveReplay& live) : mutex_(mutex), live_(live) {}

OfferWriter::~OfferWriter() {
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

// Segments of a state that was loaded since are no longer those that were being written.
void OfferWriter::Renew() {
  if (load_ == live_.loads()) return;
  load_ = live_.loads();
  writer_.reset();
  copies_from_ = 0;
}

// The group that offers enter now.
OfferWriter::Group& OfferWriter::Open() {
  Renew();
  if (open_ == nullptr) open_ = std::make_unique<Group>();
  return *open_;
}

// Decides an offer and adds it to the open group. `waits`: the caller will see that it is written.
absl::Status OfferWriter::Enter(const Caller& caller, std::vector<Entry>& entries, Offered& done,
                                bool waits) {
  const auto welcome = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return settling_ == 0; };
  mutex_.Await(absl::Condition(&welcome));
  OXBOW_RETURN_IF_ERROR(live_.CanWrite());
  Group& group = Open();
  const uint32_t before = group.batch.Count();
  OXBOW_RETURN_IF_ERROR(CheckIn(live_, caller, group.batch));
  group.sync |= group.batch.Count() > before;
  OXBOW_RETURN_IF_ERROR(MakeRoomForIds(live_, entries.size(), group.batch));
  Group::Offer& offer = group.offers.emplace_back();
  for (Entry& entry : entries) {
    offer.report.results.push_back(DecideOffer(live_, entry, group.batch));
    offer.tables.push_back(entry.table);
    const Outcome outcome = offer.report.results.back().outcome;
    if (outcome != Outcome::kInserted && outcome != Outcome::kReplaced) continue;
    group.entries.push_back(entry.id);
    live_.undurable().insert(entry.id);
    // Rejections need no fsync: should a crash forget one, it is decided again.
    group.sync = true;
  }
  for (Entry& large : live_.state().parts().TakeLarge()) group.large.push_back(std::move(large));
  offer.done = std::move(done);
  group.awaited &= waits;
  return absl::OkStatus();
}

absl::StatusOr<OfferReport> OfferWriter::Offer(const Caller& caller, std::vector<Entry> entries) {
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

void OfferWriter::OfferAsync(const Caller& caller, std::vector<Entry> entries, Offered done) {
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

void OfferWriter::WriteGroups() {
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

void OfferWriter::Tell(Group& group) {
  for (Group::Offer& offer : group.offers) {
    offer.done(group.status.ok() ? absl::StatusOr<OfferReport>(std::move(offer.report))
                                 : group.status);
  }
}

void OfferWriter::TellCallers() {
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

absl::Status OfferWriter::WriteToDisk(Group& group) {
  if (!group.large.empty() && writer_ == nullptr) writer_ = live_.database().NewSegmentWriter();
  for (const Entry& entry : group.large) OXBOW_RETURN_IF_ERROR(writer_->Put(entry));
  if (!group.large.empty()) OXBOW_RETURN_IF_ERROR(writer_->Sync());
  if (group.batch.Count() > 0)
    OXBOW_RETURN_IF_ERROR(live_.database().Write(group.batch, group.sync));
  for (const uint64_t segment : group.dead) live_.database().segments().Delete(segment);
  return absl::OkStatus();
}

// Counts what a group has done that is on the disk.
void OfferWriter::Settled(Group& group, absl::Duration took) {
  for (const EntryId entry : group.entries) live_.undurable().erase(entry);
  for (Group::Offer& offer : group.offers) {
    if (group.sync && &offer == &group.offers.front()) offer.report.sync_time = took;
    offer.report.together = group.offers.size();
    for (size_t i = 0; i < offer.tables.size(); ++i) {
      if (!Declared(live_.state(), offer.tables[i]).ok()) continue;
      const auto outcome = static_cast<size_t>(offer.report.results[i].outcome);
      ++live_.counts(offer.tables[i]).offers[outcome];
    }
  }
}

// Writes the open group. Its callers are told by a thread of their own, in the order of their
// offers; where all of them wait, which have no order, here. Requires that nobody writes.
void OfferWriter::WriteGroup() {
  if (open_ == nullptr) return;
  std::vector<std::unique_ptr<Group>> done;
  done.push_back(std::move(open_));
  Group& group = *done.front();
  if (live_.sound()) group.dead = live_.state().parts().segments().TakeDead();
  writing_ = true;
  mutex_.Unlock();
  const absl::Duration start = live_.options().clock->Now();
  const absl::Status status = WriteToDisk(group);
  const absl::Duration took = live_.options().clock->Now() - start;
  mutex_.Lock();
  if (status.ok()) {
    Settled(group, took);
  } else {
    if (open_ != nullptr) done.push_back(std::move(open_));  // Decided on what is not there.
    live_.NoteFailedWrite();
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

void OfferWriter::Settle() {
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !writing_; };
  ++settling_;
  mutex_.Await(absl::Condition(&idle));
  while (open_ != nullptr) {
    WriteGroup();
    mutex_.Await(absl::Condition(&idle));
  }
  --settling_;
}

struct OfferWriter::Copied {
  std::vector<std::pair<Entry, Location>> entries;  // As they were, and where they are now.
  std::vector<EntryId> damaged;
};

absl::StatusOr<OfferWriter::Copied> OfferWriter::CopyEntries(const std::vector<Entry>& records,
                                                             uint64_t segment) {
  const std::unique_ptr<SegmentWriter> writer = live_.database().NewSegmentWriter();
  Copied copied;
  Location to{segment, 0};
  for (const Entry& record : records) {
    const absl::StatusOr<std::string> raw = live_.database().segments().Raw(record);
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

// Durable entries of segments most of whose entries are gone, in the order of their places.
std::vector<Entry> OfferWriter::WorthCopying() {
  std::vector<Entry> records;
  const SegmentUse& use = live_.state().parts().segments();
  for (const uint64_t segment : use.WorthCopying()) {
    for (const EntryId id : use.EntriesOf(segment)) {
      if (!live_.undurable().contains(id)) records.push_back(*live_.state().Find(id));
    }
  }
  std::sort(records.begin(), records.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.location.segment, a.location.offset) <
           std::pair(b.location.segment, b.location.offset);
  });
  return records;
}

// Copies the entries that stay out of segments most of whose entries are gone. Offers are decided
// meanwhile, and what else changes the store waits for one segment's worth of bytes.
void OfferWriter::CompactSegments() {
  if (writing_ || !live_.sound()) return;
  Renew();
  SegmentUse& use = live_.state().parts().segments();
  if (copies_from_ > 0 && use.dead_bytes() < copies_from_) return;
  const std::vector<Entry> records = WorthCopying();
  if (records.empty()) return;
  const uint64_t segment = use.NextNumber();
  writing_ = true;
  mutex_.Unlock();
  const absl::StatusOr<Copied> copied = CopyEntries(records, segment);
  mutex_.Lock();
  writing_ = false;
  if (!copied.ok()) {
    // Not again before another segment's worth is dead.
    copies_from_ = use.dead_bytes() + live_.options().segments.file;
    live_.database().segments().Delete(segment);
    OXBOW_LOG(Warning) << "replay segments could not be compacted"
                       << Field("error", std::string(copied.status().message()));
    return;
  }
  Group& group = Open();
  group.sync = true;
  for (const auto& [record, to] : copied->entries) {
    live_.state().Moved(record.id, record.location, to, group.batch);
  }
  if (!use.Holds(segment)) live_.database().segments().Delete(segment);
  OXBOW_LOG(Debug) << "replay segments compacted" << Field("entries", copied->entries.size());
  WriteGroup();
  if (copied->damaged.empty()) return;
  Settle();
  live_.EvictDamaged(copied->damaged);
}

}  // namespace oxbow::buffer
