// SPDX-License-Identifier: Apache-2.0
#include "services/reward/scorer_queue.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "rpc/retry.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::reward {
namespace {

constexpr absl::Duration kPauseMin =
    absl::Milliseconds(100);  // A caller that is refused waits so long.

uint64_t BytesOf(const std::vector<Item>& items) {
  uint64_t bytes = 0;
  for (const Item& item : items) {
    for (const Image8& frame : item.frames) bytes += frame.pixels.size();
  }
  return bytes;
}

// Whether the scorer has failed, and not its caller.
bool HasFailed(const absl::Status& status) {
  return !status.ok() && !absl::IsInvalidArgument(status) && !absl::IsFailedPrecondition(status) &&
         !absl::IsResourceExhausted(status);
}

// The error by which this process has to end, if there is one; callers see a server that is away.
absl::Status TakeBroken(ScorerQueue::Results& results) {
  absl::Status broken;
  for (absl::StatusOr<Score>& result : results) {
    if (!IsDeviceError(result.status()) && !IsOutOfMemory(result.status())) continue;
    broken.Update(result.status());
    result = absl::UnavailableError(std::string(result.status().message()));
  }
  return broken;
}

}  // namespace

ScorerQueue::ScorerQueue(Options options, Scorer& scorer, const Clock& clock,
                         std::function<void(const Batch&)> scored)
    : options_(options),
      scorer_(scorer),
      clock_(clock),
      scored_(std::move(scored)),
      threads_max_(std::min<size_t>(options.threads, scorer.concurrency_max())) {
  OXBOW_CHECK(threads_max_ > 0) << scorer.facts().name << ": no thread";
  for (size_t i = 0; i < threads_max_; ++i) threads_.emplace_back([this] { Work(); });
}

ScorerQueue::~ScorerQueue() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status ScorerQueue::Push(Request request) {
  OXBOW_CHECK(!request.items.empty()) << "a request without items";
  const RewardFacts& facts = scorer_.facts();
  const size_t count = request.items.size();
  if (facts.groupwise && facts.batch_max > 0 && count > facts.batch_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        facts.name, " compares the items of a group, at most ", facts.batch_max, ": ", count));
  }
  auto entry = std::make_shared<Entry>();
  entry->bytes = BytesOf(request.items);
  entry->results.assign(count, absl::CancelledError("the caller is gone"));
  entry->request = std::move(request);
  entry->since = clock_.Now();
  absl::MutexLock lock(&mutex_);
  // One request always fits an empty queue.
  if (items_ > 0 &&
      (items_ + count > options_.items_max || bytes_ + entry->bytes > options_.bytes_max)) {
    const absl::Duration age =
        entries_.empty() ? absl::ZeroDuration() : entry->since - entries_.front()->since;
    const absl::Duration pause = std::max(kPauseMin, age);
    return rpc::WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                   "busy: ", items_, " items of ", bytes_, " bytes wait for ",
                                   facts.name, "; ask again in ", absl::ToInt64Milliseconds(pause),
                                   " ms, or start more reward servers")),
                               pause);
  }
  items_ += count;
  bytes_ += entry->bytes;
  bytes_peak_ = std::max(bytes_peak_, bytes_);
  waiting_ += count;
  entries_.push_back(std::move(entry));
  changed_.SignalAll();
  return absl::OkStatus();
}

void ScorerQueue::Work() {
  while (true) {
    const std::vector<Piece> batch = Cut();
    if (batch.empty()) return;
    ScorePieces(batch);
  }
}

bool ScorerQueue::Ready(absl::Duration now) const {
  if (waiting_ == 0) return false;
  const size_t batch_max = scorer_.facts().batch_max;
  return ending_ || batch_max == 0 || waiting_ >= batch_max ||
         now - entries_.front()->since >= options_.batch_wait;
}

// The next batch; empty once all is scored and the queue ends.
std::vector<ScorerQueue::Piece> ScorerQueue::Cut() {
  while (true) {
    DropGone();
    absl::MutexLock lock(&mutex_);
    const absl::Duration now = clock_.Now();
    if (Ready(now)) return Take();
    if (waiting_ > 0) {
      changed_.WaitWithTimeout(&mutex_, entries_.front()->since + options_.batch_wait - now);
    } else if (ending_) {
      return {};
    } else {
      changed_.Wait(&mutex_);
    }
  }
}

std::vector<ScorerQueue::Piece> ScorerQueue::Take() {
  const RewardFacts& facts = scorer_.facts();
  size_t room =
      facts.batch_max > 0 ? facts.batch_max : (waiting_ + threads_max_ - 1) / threads_max_;
  std::vector<Piece> batch;
  while (room > 0 && !entries_.empty()) {
    const std::shared_ptr<Entry>& entry = entries_.front();
    const size_t left = entry->request.items.size() - entry->taken;
    // The first request fits by itself: Push saw to it.
    if (facts.groupwise && left > room && !batch.empty()) break;
    const size_t count = facts.groupwise ? left : std::min(left, room);
    batch.push_back({entry, entry->taken, entry->taken + count});
    entry->taken += count;
    waiting_ -= count;
    room -= std::min(room, count);
    if (count == left) entries_.pop_front();
  }
  return batch;
}

void ScorerQueue::ScorePieces(const std::vector<Piece>& batch) {
  std::vector<Item> items;
  for (const Piece& piece : batch) {
    const auto begin = piece.entry->request.items.begin();
    items.insert(items.end(), begin + static_cast<int64_t>(piece.begin),
                 begin + static_cast<int64_t>(piece.end));
  }
  const absl::Duration start = clock_.Now();
  Results results = ScoreItems(scorer_, items);
  const absl::Status broken = TakeBroken(results);
  scored_({.items = items.size(),
           .scored =
               static_cast<size_t>(absl::c_count_if(results, [](const auto& r) { return r.ok(); })),
           .failed = static_cast<size_t>(
               absl::c_count_if(results, [](const auto& r) { return HasFailed(r.status()); })),
           .waited = start - batch.front().entry->since,
           .took = clock_.Now() - start,
           .broken = broken});
  size_t next = 0;
  for (const Piece& piece : batch) {
    for (size_t i = piece.begin; i < piece.end; ++i) {
      piece.entry->results[i] = std::move(results[next++]);
    }
    bool finished = false;
    {
      absl::MutexLock lock(&mutex_);
      finished = Finished(*piece.entry, piece.end - piece.begin);
    }
    if (finished) piece.entry->request.done(std::move(piece.entry->results));
  }
}

// Takes note of finished items; true if they were the last ones.
bool ScorerQueue::Finished(Entry& entry, size_t items) {
  entry.finished += items;
  if (entry.finished < entry.request.items.size()) return false;
  items_ -= entry.request.items.size();
  bytes_ -= entry.bytes;
  return true;
}

void ScorerQueue::DropGone() {
  std::vector<std::shared_ptr<Entry>> ended;
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(entries_, [&](const std::shared_ptr<Entry>& entry) {
      mutex_.AssertHeld();
      if (!*entry->request.gone) return false;
      const size_t left = entry->request.items.size() - entry->taken;
      waiting_ -= left;
      entry->taken += left;
      if (Finished(*entry, left)) ended.push_back(entry);
      return true;
    });
  }
  for (const std::shared_ptr<Entry>& entry : ended) {
    entry->request.done(std::move(entry->results));
  }
}

}  // namespace oxbow::reward
