#include "services/learner/replay/replay_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"

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
  return absl::IsInvalidArgument(status) || absl::IsAborted(status) ||
         absl::IsFailedPrecondition(status) || absl::IsOutOfRange(status);
}

// Adds what the next shard says to the `total` of those before it, as one buffer with the entries
// of all would say it: sums, means over entries, extremes. What only one process can say of itself
// (disk, clock) stays unset.
void AddShard(const v1::InfoResponse& shard, v1::InfoResponse& total) {
  const auto before = static_cast<double>(total.entries());
  const auto added = static_cast<double>(shard.entries());
  const auto mean = [&](double of_total, double of_shard) {
    return added == 0 ? of_total : (before * of_total + added * of_shard) / (before + added);
  };
  total.set_raw_reward_mean(mean(total.raw_reward_mean(), shard.raw_reward_mean()));
  total.set_priority_mean(mean(total.priority_mean(), shard.priority_mean()));
  total.set_age_mean_steps(mean(total.age_mean_steps(), shard.age_mean_steps()));
  total.set_uses_mean(mean(total.uses_mean(), shard.uses_mean()));
  if (added > 0) {
    total.set_priority_min(before == 0 ? shard.priority_min()
                                       : std::min(total.priority_min(), shard.priority_min()));
    total.set_age_max_steps(std::max(total.age_max_steps(), shard.age_max_steps()));
  }
  total.set_entries(total.entries() + shard.entries());
  total.set_bytes(total.bytes() + shard.bytes());
  total.set_capacity(total.capacity() + shard.capacity());
  total.set_step(std::max(total.step(), shard.step()));
  for (const v1::NamedValue& count : shard.offers()) {
    auto& sums = *total.mutable_offers();
    const auto sum = std::find_if(sums.begin(), sums.end(),
                                  [&](const auto& other) { return other.name() == count.name(); });
    if (sum == sums.end()) {
      *sums.Add() = count;
    } else {
      sum->set_value(sum->value() + count.value());
    }
  }
  for (int i = 0; i < shard.tables_size(); ++i) {
    if (i == total.tables_size()) {
      *total.add_tables() = shard.tables(i);
      continue;
    }
    v1::TableInfo& table = *total.mutable_tables(i);
    table.set_capacity(table.capacity() + shard.tables(i).capacity());
    table.set_entries(table.entries() + shard.tables(i).entries());
    table.set_bytes(table.bytes() + shard.tables(i).bytes());
    table.set_evicted(table.evicted() + shard.tables(i).evicted());
  }
}

}  // namespace

ReplayLink::ReplayLink(Options options, LearnerMetrics& metrics)
    : options_(std::move(options)), metrics_(metrics) {
  OXBOW_CHECK(!options_.endpoints.empty()) << "endpoints of the replay buffer";
  for (const std::string& endpoint : options_.endpoints) {
    shards_.push_back(std::make_unique<buffer::ReplayClient>(endpoint, options_.timeout));
  }
  metrics_.BufferAttached(true);
  prober_ = std::thread([this] { Probe(); });
}

ReplayLink::~ReplayLink() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  prober_.join();
}

bool ReplayLink::attached() const {
  absl::MutexLock lock(&mutex_);
  return attached_;
}

bool ReplayLink::AwaitAttachedForTest(absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&attached_), timeout);
}

// Asks a lost buffer now and then, so that the loop never waits for one that is not there.
void ReplayLink::Probe() {
  std::vector<std::unique_ptr<buffer::ReplayClient>> clients;
  for (const std::string& endpoint : options_.endpoints) {
    clients.push_back(std::make_unique<buffer::ReplayClient>(endpoint, options_.probe_every));
  }
  absl::MutexLock lock(&mutex_);
  while (true) {
    const auto away = [this]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !attached_; };
    mutex_.Await(absl::Condition(&away));
    if (ending_) return;
    mutex_.Unlock();
    bool answers = true;
    for (const auto& client : clients) answers = answers && client->Info().ok();
    mutex_.Lock();
    if (answers && !attached_) {
      attached_ = true;
      OXBOW_LOG(Info) << "replay buffer answers again";
    } else {
      mutex_.AwaitWithTimeout(absl::Condition(&ending_), options_.probe_every);
    }
  }
}

void ReplayLink::Lost(const char* call, const absl::Status& status) {
  metrics_.BufferFailed(call);
  metrics_.BufferAttached(false);
  OXBOW_LOG(Warning) << "replay buffer is away, training goes on without it" << Field("call", call)
                     << Field("error", std::string(status.message()));
  absl::MutexLock lock(&mutex_);
  attached_ = false;
}

void ReplayLink::Restore(const std::string& checkpoint) {
  pending_.clear();
  pending_.push_back({.restore = checkpoint, .commit = {}});
  Deliver();
}

absl::Status ReplayLink::Hand(const Pending& pending) {
  return pending.restore.has_value() ? HandRestore(*pending.restore) : HandCommit(pending.commit);
}

absl::Status ReplayLink::HandRestore(const std::string& checkpoint) {
  std::string held = checkpoint;
  for (const auto& shard : shards_) {
    absl::Status status = shard->Restore(options_.epoch, checkpoint);
    if (absl::IsNotFound(status)) {
      // What it holds may be of steps that are yet to come; nothing is better.
      metrics_.BufferFailed("restore");
      OXBOW_LOG(Warning) << "replay buffer lacks the checkpoint and starts empty"
                         << Field("error", std::string(status.message()));
      status = shard->Restore(options_.epoch, "");
      held.clear();
    }
    OXBOW_RETURN_IF_ERROR(status);
  }
  OXBOW_LOG(Debug) << "replay buffer restored" << Field("epoch", options_.epoch)
                   << Field("checkpoint", held);
  return absl::OkStatus();
}

void ReplayLink::Answered(LearnerStep step, const v1::ReplayEntry& offer,
                          const v1::OfferResponse::Result& result) {
  if (offer.table().empty()) metrics_.OfferAnswered(OutcomeName(result.outcome()));
  OXBOW_LOG(Debug) << "offer answered" << Field("epoch", options_.epoch) << Field("step", step)
                   << Field("entry", offer.entry_id()) << Field("prompt", offer.prompt().id())
                   << Field("outcome", OutcomeName(result.outcome()))
                   << Field("replaced", result.replaced_entry_id());
}

// The buffer decides entries one after another and recognises their ids: it makes no difference
// where a call ends, nor that a commit which broke off between two calls starts again.
absl::Status ReplayLink::HandOffers(const StepCommit& commit, size_t shard) {
  std::vector<const v1::ReplayEntry*> call;
  uint64_t bytes = 0;
  const auto send = [&]() -> absl::Status {
    std::vector<v1::ReplayEntry> offers;
    for (const v1::ReplayEntry* offer : call) offers.push_back(*offer);
    OXBOW_ASSIGN_OR_RETURN(const v1::OfferResponse response,
                           shards_[shard]->Offer(options_.epoch, std::move(offers)));
    for (size_t i = 0; i < call.size(); ++i) {
      Answered(commit.step, *call[i], response.results(static_cast<int>(i)));
    }
    call.clear();
    bytes = 0;
    return absl::OkStatus();
  };
  for (const v1::ReplayEntry& offer : commit.offers) {
    if (offer.prompt().id() % shards_.size() != shard) continue;
    const uint64_t size = offer.ByteSizeLong();
    if (bytes + size > options_.call_bytes_max) OXBOW_RETURN_IF_ERROR(send());
    call.push_back(&offer);
    bytes += size;
  }
  return send();
}

absl::Status ReplayLink::HandGroups(const StepCommit& commit, size_t shard) {
  for (const v1::ReplayEntry& group : commit.groups) {
    if (group.prompt().id() % shards_.size() != shard) continue;
    OXBOW_ASSIGN_OR_RETURN(const v1::OfferResponse response,
                           shards_[shard]->Offer(options_.epoch, {group}));
    Answered(commit.step, group, response.results(0));
  }
  return absl::OkStatus();
}

absl::Status ReplayLink::HandCommit(const StepCommit& commit) {
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    OXBOW_RETURN_IF_ERROR(HandOffers(commit, shard));
    OXBOW_RETURN_IF_ERROR(HandGroups(commit, shard));
    OXBOW_RETURN_IF_ERROR(
        shards_[shard]->Advance(options_.epoch, commit.step, commit.used, commit.evict));
  }
  for (const EntryId entry : commit.evict) {
    OXBOW_LOG(Debug) << "entry evicted" << Field("step", commit.step) << Field("entry", entry);
  }
  return absl::OkStatus();
}

bool ReplayLink::Deliver() {
  if (!attached()) return false;
  while (!pending_.empty()) {
    const bool restores = pending_.front().restore.has_value();
    const absl::Status status = Hand(pending_.front());
    if (!restores && IsRefusal(status)) {
      // Those behind it must not wait for ever.
      metrics_.BufferFailed("commit");
      metrics_.BufferCommitsDropped();
      OXBOW_LOG(Warning) << "replay buffer refuses a commit"
                         << Field("step", pending_.front().commit.step.value)
                         << Field("error", std::string(status.message()));
    } else if (!status.ok()) {
      Lost(restores ? "restore" : "commit", status);
      return false;
    }
    pending_.pop_front();
  }
  metrics_.BufferAttached(true);
  return true;
}

void ReplayLink::Commit(StepCommit commit) {
  pending_.push_back({.restore = std::nullopt, .commit = std::move(commit)});
  if (!Deliver()) LimitBacklog();
}

// Offers take the room; uses and evictions stay: they end soon after draws do. A later commit moves
// the buffer's age as well, so a commit with nothing else to say goes.
void ReplayLink::LimitBacklog() {
  if (pending_.size() <= options_.commits_max) return;
  const auto oldest = pending_.end() - 1 - static_cast<std::ptrdiff_t>(options_.commits_max);
  if (oldest->restore.has_value()) return;
  const bool offers = !oldest->commit.offers.empty() || !oldest->commit.groups.empty();
  if (offers) metrics_.BufferCommitsDropped();
  oldest->commit.offers.clear();
  oldest->commit.groups.clear();
  if (oldest->commit.used.empty() && oldest->commit.evict.empty()) pending_.erase(oldest);
}

absl::Status ReplayLink::Checkpoint(const std::string& name, uint32_t keep) {
  if (!Deliver()) return absl::UnavailableError("the replay buffer is away");
  for (const auto& shard : shards_) {
    if (const absl::Status status = shard->Checkpoint(options_.epoch, name, keep); !status.ok()) {
      metrics_.BufferFailed("checkpoint");
      return status;
    }
  }
  OXBOW_LOG(Debug) << "replay buffer keeps a checkpoint" << Field("checkpoint", name);
  return absl::OkStatus();
}

std::optional<v1::InfoResponse> ReplayLink::Info() {
  if (!attached()) return std::nullopt;
  v1::InfoResponse total;
  for (const auto& shard : shards_) {
    const auto info = shard->Info();
    if (!info.ok()) return std::nullopt;
    AddShard(*info, total);
  }
  return total;
}

}  // namespace oxbow::learner
