// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/shard_link.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/retry.h"

namespace oxbow::learner {
namespace {

// "OFFER_OUTCOME_REJECTED_LOWER" -> "rejected_lower"
std::string OutcomeName(v1::OfferOutcome outcome) {
  static constexpr size_t kPrefix = sizeof("OFFER_OUTCOME_") - 1;
  const std::string& name = v1::OfferOutcome_Name(outcome);
  return name.size() > kPrefix ? absl::AsciiStrToLower(name.substr(kPrefix)) : "unknown";
}

// Whether a buffer that is there gave an answer that asking again would not change.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) || absl::IsNotFound(status);
}

// Whether the buffer is another run's, or a later start's of this run.
bool EndsTheRun(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsAborted(status);
}

// Whether nobody answered, as while a dead buffer is being started again.
bool IsAway(const absl::Status& status) {
  const rpc::Failure failure = rpc::FailureOf(status);
  return failure == rpc::Failure::kAbsent || failure == rpc::Failure::kSilent;
}

uint64_t BytesOf(const StepCommit& commit) {
  uint64_t bytes = 0;
  for (const v1::ReplayEntry& offer : commit.offers) bytes += offer.ByteSizeLong();
  for (const v1::ReplayEntry& group : commit.groups) bytes += group.ByteSizeLong();
  return bytes;
}

}  // namespace

ShardLink::ShardLink(Options options, LearnerMetrics& metrics)
    : options_(std::move(options)),
      metrics_(metrics),
      client_(options_.endpoint, options_.timeout, options_.run),
      began_at_(Clock::Steady().Now()) {
  prober_ = std::thread([this] { Probe(); });
}

ShardLink::~ShardLink() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  prober_.join();
}

bool ShardLink::attached() const {
  absl::MutexLock lock(&mutex_);
  return attached_ && ended_.ok();
}

absl::Status ShardLink::ended() const {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

bool ShardLink::AwaitAttachedForTest(absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&attached_), timeout);
}

// Asks a lost shard now and then, so that the loop never waits for one that is not there.
void ShardLink::Probe() {
  buffer::ReplayClient client(options_.endpoint, options_.probe_every);
  absl::MutexLock lock(&mutex_);
  while (true) {
    const auto away = [this]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !attached_; };
    mutex_.Await(absl::Condition(&away));
    if (ending_) return;
    if (const absl::Duration rest = rests_until_ - Clock::Steady().Now();
        rest > absl::ZeroDuration()) {
      mutex_.AwaitWithTimeout(absl::Condition(&ending_), rest);
      continue;
    }
    mutex_.Unlock();
    const bool answers = client.Info().ok();
    mutex_.Lock();
    if (answers && !attached_) {
      attached_ = true;
      OXBOW_LOG(Info) << "replay buffer answers again" << Field("buffer", options_.endpoint);
    } else {
      mutex_.AwaitWithTimeout(absl::Condition(&ending_), options_.probe_every);
    }
  }
}

// Nothing for one that rests. Its rest counts for the next try, which is rare and may take longer.
void ShardLink::BeginStep() {
  const absl::Duration now = Clock::Steady().Now();
  absl::MutexLock lock(&mutex_);
  if (options_.step_budget == absl::InfiniteDuration() || now < rests_until_) return;
  left_ = std::max(options_.step_budget, std::min(options_.timeout, (now - began_at_) / 10));
  began_at_ = now;
}

void ShardLink::Spent(const char* call, absl::Duration time) {
  if (budget_spent()) return;  // It was asked nothing.
  left_ -= time;
  if (!budget_spent()) return;
  rest_ = std::clamp(2 * rest_, options_.rest_least, 10 * options_.rest_least);
  OXBOW_LOG(Warning) << "replay buffer is slow, training goes on without it" << Field("call", call)
                     << Field("buffer", options_.endpoint)
                     << Field("rest_s", absl::ToDoubleSeconds(rest_));
  metrics_.BufferOverran();
  metrics_.BufferAttached(false);
  absl::MutexLock lock(&mutex_);
  attached_ = false;
  rests_until_ = Clock::Steady().Now() + rest_;
}

bool ShardLink::Failed(const char* call, const absl::Status& status) {
  metrics_.BufferFailed(call);
  if (IsRefusal(status)) {
    OXBOW_LOG(Warning) << "replay buffer refuses a call" << Field("call", call)
                       << Field("error", std::string(status.message()));
    return true;
  }
  if (EndsTheRun(status)) {
    // Neither waiting nor another start of this learner helps: an error of how it was started.
    absl::MutexLock lock(&mutex_);
    ended_ = absl::InvalidArgumentError(status.message());
    return false;
  }
  OXBOW_LOG(Warning) << "replay buffer is away, training goes on without it" << Field("call", call)
                     << Field("shard", options_.shard)
                     << Field("error", std::string(status.message()));
  metrics_.BufferAttached(false);
  absl::MutexLock lock(&mutex_);
  attached_ = false;
  return false;
}

bool ShardLink::AwaitBack(const char* call, const absl::Status& status, absl::Duration give_up) {
  if (options_.await_back <= absl::ZeroDuration() || waited_in_vain_ || !IsAway(status)) {
    return false;
  }
  OXBOW_LOG(Warning) << "replay buffer is away, the step waits for it" << Field("call", call)
                     << Field("error", std::string(status.message()));
  metrics_.BufferFailed(call);
  metrics_.BufferAttached(false);
  absl::MutexLock lock(&mutex_);
  attached_ = false;  // The prober asks it.
  const bool back =
      mutex_.AwaitWithTimeout(absl::Condition(&attached_), give_up - Clock::Steady().Now());
  waited_in_vain_ = !back || Clock::Steady().Now() >= give_up;
  return !waited_in_vain_;
}

void ShardLink::Restore(const std::string& checkpoint, LearnerStep step) {
  pending_.clear();
  pending_bytes_ = 0;
  pending_.push_back({.restore = checkpoint, .commit = {.step = step}});
}

absl::Status ShardLink::HandRestore(buffer::ReplayClient& client, const std::string& checkpoint,
                                    LearnerStep step) {
  bool without_copy = false;
  const buffer::RestoreFor wanted{.step = step,
                                  .shards = options_.shards,
                                  .shard = options_.shard,
                                  .take_from = options_.take_from,
                                  .start = options_.start,
                                  .without_copy = &without_copy};
  std::string held = checkpoint;
  absl::Status status = client.Restore(options_.epoch, checkpoint, wanted);
  if (absl::IsNotFound(status)) {
    held.clear();
    status = client.Restore(options_.epoch, "", wanted);
  }
  OXBOW_RETURN_IF_ERROR(status);
  if (held.empty() && (!checkpoint.empty() || step.value > 0)) {
    metrics_.BufferFailed("restore");
    OXBOW_LOG(Warning) << "replay buffer goes on without a checkpoint, with what was born before"
                       << Field("checkpoint", checkpoint) << Field("step", step);
  }
  if (without_copy) {
    OXBOW_LOG(Warning) << "content left the replay buffer without a copy: it has as many copies "
                          "of earlier content as it keeps"
                       << Field("shard", options_.shard) << Field("step", step);
  }
  OXBOW_LOG(Debug) << "replay buffer restored" << Field("epoch", options_.epoch)
                   << Field("shard", options_.shard) << Field("checkpoint", held)
                   << Field("step", step);
  return absl::OkStatus();
}

void ShardLink::Answered(LearnerStep step, const v1::ReplayEntry& offer,
                         const v1::OfferResponse::Result& result) {
  if (offer.table().empty()) metrics_.OfferAnswered(OutcomeName(result.outcome()));
  OXBOW_LOG(Debug) << "offer answered" << Field("epoch", options_.epoch)
                   << Field("shard", options_.shard) << Field("step", step)
                   << Field("entry", offer.entry_id()) << Field("prompt", offer.prompt().id())
                   << Field("outcome", OutcomeName(result.outcome()))
                   << Field("replaced", result.replaced_entry_id());
}

// The buffer decides entries one after another and recognises their ids: it makes no difference
// where a call ends, nor that a commit which broke off between two calls starts again. What a call
// has handed in is not handed in again, so that a slow buffer gets on.
absl::Status ShardLink::HandOffers(buffer::ReplayClient& client, Pending& pending) {
  StepCommit& commit = pending.commit;
  const auto send = [&](std::vector<v1::ReplayEntry>& from, size_t count) -> absl::Status {
    const auto end = from.begin() + static_cast<std::ptrdiff_t>(count);
    OXBOW_ASSIGN_OR_RETURN(const v1::OfferResponse response,
                           client.Offer(options_.epoch, {from.begin(), end}));
    for (size_t i = 0; i < count; ++i) {
      Answered(commit.step, from[i], response.results(static_cast<int>(i)));
      const uint64_t bytes = from[i].ByteSizeLong();
      pending.bytes -= bytes;
      pending_bytes_ -= bytes;
    }
    from.erase(from.begin(), end);
    return absl::OkStatus();
  };
  while (!commit.offers.empty()) {
    size_t count = 1;
    for (uint64_t bytes = commit.offers[0].ByteSizeLong(); count < commit.offers.size(); ++count) {
      bytes += commit.offers[count].ByteSizeLong();
      if (bytes > options_.call_bytes_max) break;
    }
    OXBOW_RETURN_IF_ERROR(send(commit.offers, count));
  }
  while (!commit.groups.empty()) OXBOW_RETURN_IF_ERROR(send(commit.groups, 1));
  return absl::OkStatus();
}

absl::Status ShardLink::HandCommit(buffer::ReplayClient& client, Pending& pending) {
  OXBOW_RETURN_IF_ERROR(HandOffers(client, pending));
  const StepCommit& commit = pending.commit;
  OXBOW_RETURN_IF_ERROR(client.Advance(options_.epoch, commit.step, commit.used, commit.evict,
                                       commit.rescored, commit.failures_max));
  for (const EntryId entry : commit.evict) {
    if (options_.shard > 0) break;  // All shards are told; one line is enough.
    OXBOW_LOG(Debug) << "entry evicted" << Field("step", commit.step) << Field("entry", entry);
  }
  return absl::OkStatus();
}

bool ShardLink::Deliver() {
  if (!attached() || budget_spent()) return false;
  while (!pending_.empty()) {
    Pending& first = pending_.front();
    const bool restores = first.restore.has_value();
    const absl::Status status =
        Ask(restores ? "restore" : "commit", [&](buffer::ReplayClient& client) {
          return restores ? HandRestore(client, *first.restore, first.commit.step)
                          : HandCommit(client, first);
        });
    if (!status.ok()) {
      // Those behind a refused commit must not wait for ever. A restore that is refused can never
      // be done, and without it the buffer is of another past.
      const bool refused = Failed(restores ? "restore" : "commit", status);
      if (restores && refused) {
        absl::MutexLock lock(&mutex_);
        ended_ = absl::InvalidArgumentError(status.message());
      }
      if (restores || !refused) return false;
      metrics_.BufferCommitsDropped();
    }
    if (status.ok()) rest_ = absl::ZeroDuration();
    pending_bytes_ -= first.bytes;
    pending_.pop_front();
  }
  return true;
}

void ShardLink::Add(StepCommit commit) {
  const uint64_t bytes = BytesOf(commit);
  pending_bytes_ += bytes;
  pending_.push_back({.restore = std::nullopt, .commit = std::move(commit), .bytes = bytes});
}

// Offers take the room; uses, new rewards and evictions stay: they end soon after draws do. A later
// commit moves the buffer's age as well, so a commit with nothing else to say goes.
void ShardLink::LimitBacklog() {
  size_t kept = pending_.size();
  for (auto at = pending_.begin(); at != pending_.end();) {
    if (kept <= options_.commits_max && pending_bytes_ <= options_.backlog_bytes_max) return;
    --kept;
    if (at->restore.has_value()) {
      ++at;
      continue;
    }
    if (at->bytes > 0) metrics_.BufferCommitsDropped();
    pending_bytes_ -= std::exchange(at->bytes, 0);
    at->commit.offers = {};
    at->commit.groups = {};
    const bool last = std::next(at) == pending_.end();
    const bool said =
        at->commit.used.empty() && at->commit.evict.empty() && at->commit.rescored.empty();
    at = said && !last ? pending_.erase(at) : std::next(at);
  }
}

absl::Status ShardLink::Checkpoint(const std::string& name, uint32_t keep) {
  if (!Deliver()) return absl::UnavailableError("the replay buffer is away");
  const absl::Status status = Ask("checkpoint", [&](buffer::ReplayClient& client) {
    return client.Checkpoint(options_.epoch, name, keep);
  });
  if (EndsTheRun(status)) {
    Failed("checkpoint", status);
  } else if (!status.ok()) {
    metrics_.BufferFailed("checkpoint");
  }
  return status;
}

}  // namespace oxbow::learner
