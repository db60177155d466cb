// SPDX-License-Identifier: Apache-2.0
#include "services/reward/reward_client.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/trace.h"
#include "rpc/port_language.h"
#include "rpc/protocol_revision.h"
#include "rpc/retry.h"
#include "rpc/status.h"
#include "run/rewards.h"
#include "services/reward/reward_client_impl.h"
#include "services/reward/score_messages.h"

namespace oxbow::reward {
namespace {

constexpr BatchLimits kLimits = {.batch_bytes = kMessagePixelsMax,
                                 .medium_bytes = uint64_t{256} << 20,  // As servers take.
                                 .group_bytes = uint64_t{1} << 30,
                                 .frames = kFramesMax};
constexpr size_t kBatchesAtOnce = 8;  // One call has so many.
constexpr absl::Duration kDescribeTimeoutMax = absl::Seconds(10);
constexpr absl::Duration kRestFirst = absl::Milliseconds(250);  // Between two descriptions.
constexpr absl::Duration kRestMax = absl::Seconds(5);
constexpr absl::Duration kWaitSlice = absl::Milliseconds(200);  // Between looks at the clock.
constexpr absl::Duration kObservedWaitMax = absl::Seconds(1);   // For a server that rests.

using Absences = std::map<std::string, absl::Status>;  // By reward.
using Turn = RewardDirectory::Turn;

// How long a busy server asked to be left alone.
absl::Duration PauseOf(Absences::const_iterator absence, const Absences& absences) {
  if (absence == absences.end()) return absl::ZeroDuration();
  return rpc::RetryAfterOf(absence->second).value_or(absl::ZeroDuration());
}

// The status of a call, and its absences, with the pause that its server asked for.
absl::Status WithPause(absl::Status status, const grpc::ClientContext& ended, Absences& absences) {
  const auto pause = rpc::RetryAfterOf(ended);
  if (!pause.has_value()) return status;
  for (auto& [reward, absence] : absences) {
    if (absl::IsResourceExhausted(absence)) {
      absence = rpc::WithRetryAfter(std::move(absence), *pause);
    }
  }
  if (!absl::IsResourceExhausted(status)) return status;
  return rpc::WithRetryAfter(std::move(status), *pause);
}

// An error of a whole call need not concern each of its images: it is no final answer.
absl::Status StatusOfCall(const absl::Status& status, const std::string& endpoint) {
  return Annotate(IsFinal(status) ? absl::InternalError(status.message()) : status,
                  absl::StrCat("reward server ", endpoint));
}

// Why a server gave nothing, with its name. A deadline's own words would name neither what was
// asked for nor the key that allows more.
absl::Status Silence(const RewardClient::Options& options, size_t server, const std::string& wanted,
                     absl::Duration allowed, const absl::Status& status) {
  const std::string where = absl::StrCat("reward server ", options.endpoints[server]);
  if (!absl::IsDeadlineExceeded(status)) return Annotate(status, where);
  return absl::DeadlineExceededError(
      absl::StrCat(where, " gave no ", wanted, " within ", absl::ToDoubleSeconds(allowed), " s",
                   allowed == options.timeout ? " (reward.timeout_seconds)" : ""));
}

absl::Duration DescribeTimeout(const RewardClient::Options& options) {
  return std::min(options.timeout, kDescribeTimeoutMax);
}

// Whether the server has ended the connection for too many pings, by the words of gRPC.
bool WasPingedTooOften(const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return false;
  const std::string said = absl::AsciiStrToLower(std::string(status.message()));
  return absl::StrContains(absl::StrReplaceAll(said, {{"_", " "}}), "too many pings");
}

std::shared_ptr<v1::Reward::Stub> StubOf(const std::string& endpoint, rpc::Pings pings) {
  return v1::Reward::NewStub(rpc::Connect(endpoint, pings));
}

}  // namespace

ServerLine::ServerLine(std::string endpoint, rpc::Pings pings)
    : endpoint_(std::move(endpoint)), pings_(pings), stub_(StubOf(endpoint_, pings)) {}

std::shared_ptr<v1::Reward::Stub> ServerLine::stub() const {
  absl::MutexLock lock(&mutex_);
  return stub_;
}

rpc::Pings ServerLine::pings() const {
  absl::MutexLock lock(&mutex_);
  return pings_;
}

void ServerLine::Ended(const absl::Status& status) {
  if (!WasPingedTooOften(status)) return;
  absl::MutexLock lock(&mutex_);
  if (std::exchange(pings_, rpc::Pings::kRarely) == rpc::Pings::kRarely) return;
  stub_ = StubOf(endpoint_, rpc::Pings::kRarely);
  OXBOW_LOG(Info) << "the server allows few pings: rare ones from now on"
                  << Field("endpoint", endpoint_);
}

absl::StatusOr<std::unique_ptr<RewardClient>> RewardClient::Connect(Options options) {
  if (options.endpoints.empty()) {
    return absl::InvalidArgumentError("no reward server endpoint is given");
  }
  OXBOW_CHECK(options.tries >= 1) << options.tries << " tries";
  options.breaker.rest_max = std::min(options.breaker.rest_max, options.timeout);
  auto impl = std::make_unique<Impl>(std::move(options));
  for (const std::string& endpoint : impl->options.endpoints) {
    const bool elsewhere = impl->options.elsewhere.contains(endpoint);
    impl->lines.push_back(std::make_unique<ServerLine>(
        endpoint, elsewhere ? rpc::Pings::kDuringCalls : rpc::Pings::kOften));
  }
  return std::unique_ptr<RewardClient>(new RewardClient(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<RewardClient>> RewardClient::Create(Options options) {
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<RewardClient> client, Connect(std::move(options)));
  OXBOW_RETURN_IF_ERROR(client->Describe());
  return client;
}

RewardClient::RewardClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RewardClient::~RewardClient() = default;

bool RewardClient::Impl::IsObserved(const std::string& reward) const {
  return absl::c_linear_search(options.observed, reward);
}

bool RewardClient::Impl::MayBeMissing(const std::vector<std::string>& rewards) const {
  return absl::c_all_of(rewards, [&](const std::string& reward) { return IsObserved(reward); });
}

absl::Status RewardClient::Describe() { return impl_->Describe(); }

// False at once when nobody waits any more.
bool RewardClient::Impl::Rest(absl::Duration duration) {
  const auto ends = [this]()
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return cancelled || impatient; };
  absl::MutexLock lock(&mutex);
  return !mutex.AwaitWithTimeout(absl::Condition(&ends), duration);
}

absl::Status RewardClient::AwaitDescription(const std::function<void(const std::string&)>& says) {
  Impl::Waiting waiting(*impl_);
  absl::Duration rest = kRestFirst;
  while (true) {
    const absl::Status status = Describe();
    if (!absl::IsUnavailable(status)) return status;
    waiting.Begin(status);
    if (says) says(std::string(status.message()));
    if (!impl_->Rest(rest)) return absl::CancelledError("no longer waits for a reward server");
    rest = std::min({2 * rest, kRestMax, impl_->options.timeout});
  }
}

void RewardClient::Pin(const std::map<std::string, std::string>& identities) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->directory.Pin(identities);
}

std::map<std::string, RewardFacts> RewardClient::Facts() const {
  absl::MutexLock lock(&impl_->mutex);
  std::map<std::string, RewardFacts> facts = impl_->directory.Facts();
  std::erase_if(facts, [&](const auto& entry) {
    return !absl::c_linear_search(impl_->options.rewards, entry.first);
  });
  return facts;
}

// One look at a server. A conflict with another server is kInvalidArgument; the server is described
// all the same.
absl::Status RewardClient::Impl::DescribeOne(size_t server) {
  v1::DescribeResponse response;
  const Cancellable context(*this, DescribeTimeout(options));
  OXBOW_RETURN_IF_ERROR(
      rpc::FromGrpc(lines[server]->stub()->Describe(context.get(), {}, &response)));
  if (response.protocol() != 0) {  // Servers of others need not say it.
    const absl::Status speaks =
        rpc::CheckRevision(absl::StrCat("the reward server at ", options.endpoints[server]),
                           response.protocol(), response.version(), "its caller");
    if (!speaks.ok()) {
      absl::MutexLock lock(&mutex);
      directory.Described(server, {}, response.batch_max()).IgnoreError();
      return speaks;
    }
  }
  std::vector<RewardFacts> rewards;
  const auto not_asked = options.not_asked.find(options.endpoints[server]);
  for (const v1::RewardDescription& reward : response.rewards()) {
    if (not_asked != options.not_asked.end() && not_asked->second.contains(reward.name())) continue;
    RewardFacts facts = FactsOf(reward);
    facts.identity = run::IdentityVia(options.transport, facts.identity);
    rewards.push_back(std::move(facts));
  }
  absl::MutexLock lock(&mutex);
  return directory.Described(server, rewards, response.batch_max());
}

absl::Status RewardClient::Impl::Describe() {
  absl::Status failure;
  bool answered = false;
  for (size_t server = 0; server < lines.size(); ++server) {
    const absl::Status status = rpc::Retry({}, [&] { return DescribeOne(server); });
    if (absl::IsInvalidArgument(status)) return status;
    answered |= status.ok();
    if (status.ok()) continue;
    OXBOW_LOG(Warning) << "reward server does not answer"
                       << Field("endpoint", options.endpoints[server]) << Field("status", status);
    failure = status;
  }
  if (answered) {
    absl::MutexLock lock(&mutex);
    if (options.rewards.empty()) {
      for (const auto& [name, facts] : directory.Facts()) options.rewards.push_back(name);
    }
    return directory.CheckNames(options.rewards);
  }
  if (absl::IsCancelled(failure)) return failure;
  if (!IsAbsence(failure)) {
    return absl::FailedPreconditionError(
        absl::StrCat("what listens at ", options.endpoints.front(),
                     " is no reward server of this version: ", std::string(failure.message())));
  }
  if (absl::IsDeadlineExceeded(failure)) {
    return absl::UnavailableError(
        Silence(options, lines.size() - 1, "description", DescribeTimeout(options), failure)
            .message());
  }
  failure = rpc::Explained(failure, options.endpoints.back());
  return absl::UnavailableError(
      absl::StrCat("no reward server answers (is it running?): ", options.endpoints.back(), ": ",
                   std::string(failure.message())));
}

std::vector<absl::StatusOr<Scores>> RewardClient::ScoreMedia(
    const std::string& prompt_text, const std::string& prompt_metadata_json,
    const std::vector<Frames>& media, const Patience& patience) {
  std::unique_ptr<ScoreCall> call;
  std::vector<ScoreBatch> batches;
  {
    absl::MutexLock lock(&impl_->mutex);
    call = impl_->NewCall(media, patience);
    call->prompt.set_text(prompt_text);
    call->prompt.set_metadata_json(prompt_metadata_json);
    batches = PlanBatches(impl_->directory, impl_->options.rewards, call->media.sizes(), kLimits);
  }
  impl_->RunBatches(*call, batches);
  absl::MutexLock lock(&call->mutex);
  impl_->LogFailures(call->outcomes);
  std::vector<absl::StatusOr<Scores>> scores;
  for (const Outcomes& outcomes : call->outcomes) scores.push_back(impl_->ResultOf(outcomes));
  return scores;
}

std::unique_ptr<ScoreCall> RewardClient::Impl::NewCall(const std::vector<Frames>& media,
                                                       const Patience& patience) {
  std::unique_ptr<ScoreCall> call(new ScoreCall{
      .prompt = {},
      .media = {media, options.transport},
      .waits = patience.waits,
      .says = patience.says,
      .end = options.clock->Now() + patience.limit,
      .group = 1 + std::uniform_int_distribution<uint64_t>(0, UINT64_MAX - 1)(random)});
  absl::MutexLock lock(&call->mutex);
  call->outcomes.resize(media.size());
  return call;
}

// On this thread and further ones.
void RewardClient::Impl::RunBatches(ScoreCall& call, const std::vector<ScoreBatch>& batches) {
  std::atomic<size_t> next = 0;
  const std::optional<Trace> trace = CurrentTrace();  // Threads begin without one.
  const auto work = [&] {
    const TraceScope scope(trace);
    for (size_t i = next++; i < batches.size(); i = next++) Score(call, batches[i]);
  };
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < std::min(batches.size(), kBatchesAtOnce); ++i) threads.emplace_back(work);
  work();
}

// All scores, or the first reason why one that must not be missing is. An answer goes before an
// absence: it would be the same the next time.
absl::StatusOr<Scores> RewardClient::Impl::ResultOf(const Outcomes& outcomes) const {
  Scores scores;
  absl::Status absence;
  for (const std::string& reward : options.rewards) {
    const absl::StatusOr<double>& outcome = outcomes.at(reward);
    if (outcome.ok()) scores[reward] = *outcome;
    if (outcome.ok() || IsObserved(reward)) continue;
    if (IsUnscorable(outcome.status())) return outcome.status();
    absence.Update(outcome.status());
  }
  if (!absence.ok()) return absence;
  return scores;
}

void RewardClient::Impl::LogFailures(const std::vector<Outcomes>& outcomes) const {
  for (const std::string& reward : options.observed) {
    uint64_t failed = 0;
    absl::Status reason;
    for (const Outcomes& of_image : outcomes) {
      const auto outcome = of_image.find(reward);
      if (outcome == of_image.end() || outcome->second.ok()) continue;
      ++failed;
      reason.Update(outcome->second.status());
    }
    if (failed == 0) continue;
    OXBOW_LOG(Warning) << "observed reward has no score" << Field("reward", reward)
                       << Field("images", failed) << Field("reason", reason);
  }
}

// Asks until every image of the batch has a score or was answered kAnswersMax times without one.
// The last time it asks for each image alone: one that breaks its call then takes no other along.
void RewardClient::Impl::Score(ScoreCall& call, const ScoreBatch& batch) {
  if (!batch.too_large.empty()) {
    return Settle(call, batch, absl::InvalidArgumentError(batch.too_large));
  }
  std::optional<ScoreBatch> open = batch;
  for (int answers = 1; open.has_value(); ++answers) {
    if (answers < kAnswersMax || batch.whole_group) {
      Ask(call, *open);
    } else {
      for (const size_t i : open->images) {
        Ask(call, {.images = {i}, .rewards = open->rewards, .frames_every = open->frames_every});
      }
    }
    if (answers == kAnswersMax) return;
    open = Reopen(call, *open);
  }
}

// Gets one answer for every reward of every image, whatever it says, or the reason why no server
// answers.
void RewardClient::Impl::Ask(ScoreCall& call, const ScoreBatch& batch) {
  Waiting waiting(*this);
  absl::Status last;
  std::optional<absl::Duration> observed_end;
  bool hangs = false;  // A server took a call and let its time pass.
  for (int silences = 0;;) {
    const std::optional<ScoreBatch> open = Unanswered(call, batch);
    if (!open.has_value()) return;
    const bool observed = MayBeMissing(open->rewards);
    if (observed && !observed_end) observed_end = options.clock->Now() + kObservedWaitMax;
    const bool patient = call.waits && !observed;
    if (silences >= options.tries && !patient) return GiveUp(call, *open, last);
    if (patient && (silences >= options.tries || hangs)) {
      waiting.Begin(last);
      if (call.says) call.says(std::string(last.message()));
    }
    const absl::StatusOr<Turn> turn =
        Next(call, open->rewards, observed ? std::min(call.end, *observed_end) : call.end);
    if (!turn.ok()) {
      const bool why = last.ok() || !absl::IsUnavailable(turn.status());
      return GiveUp(call, *open,
                    why ? turn.status() : Annotate(last, std::string(turn.status().message())));
    }
    const absl::Status status = Take(*turn, call, *open);
    if (status.ok()) continue;
    hangs |= absl::IsDeadlineExceeded(status);
    last = absl::UnavailableError(status.message());
    if (!absl::IsResourceExhausted(status)) ++silences;  // A busy server is there.
  }
}

// Ends the batch, and the call if it cannot do without these rewards.
void RewardClient::Impl::GiveUp(ScoreCall& call, const ScoreBatch& open, const absl::Status& why) {
  Settle(call, open, why);
  if (!IsAbsence(why) || MayBeMissing(open.rewards)) return;
  absl::MutexLock lock(&call.mutex);
  call.absence.Update(why);
}

// Has a server answer. An absence, if it does not for some reward.
absl::Status RewardClient::Impl::Take(const Turn& turn, ScoreCall& call, const ScoreBatch& open) {
  if (turn.rewards.empty()) {
    absl::Status status = Silence(options, turn.server, "description", DescribeTimeout(options),
                                  DescribeOne(turn.server));
    if (absl::IsInvalidArgument(status)) {
      OXBOW_LOG(Error) << "reward server is left out" << Field("reason", status);
      status = absl::OkStatus();
    }
    if (!status.ok() && !IsAbsence(status)) status = absl::UnavailableError(status.message());
    NoteOutcome(turn.server, "", status);
    return status;
  }
  ScoreBatch part = open;
  part.rewards = turn.rewards;
  part = Unanswered(call, part).value();
  const absl::Duration allowed = std::min(options.timeout, call.end - options.clock->Now());
  const Absences absences = TryBatch(turn.server, call, part, allowed);
  absl::Status result;
  for (const std::string& reward : part.rewards) {
    const auto absence = absences.find(reward);
    const absl::Status status =
        absence == absences.end()
            ? absl::OkStatus()
            : Silence(options, turn.server, absl::StrCat("score for `", reward, "`"), allowed,
                      absence->second);
    NoteOutcome(turn.server, reward, status, PauseOf(absence, absences));
    if (result.ok() || absl::IsResourceExhausted(result)) result.Update(status);
  }
  return result;
}

void RewardClient::Impl::NoteOutcome(size_t server, const std::string& reward,
                                     const absl::Status& status, absl::Duration pause) {
  absl::MutexLock lock(&mutex);
  if (status.ok() || !cancelled) {
    directory.Note(server, reward, status.ok(), options.clock->Now(),
                   std::uniform_real_distribution<>(0, 1)(random),
                   std::min(pause, options.timeout));
  }
  if (!status.ok() && !cancelled) {
    OXBOW_LOG(Warning) << "scoring failed" << Field("endpoint", options.endpoints[server])
                       << Field("reward", reward) << Field("status", status);
  }
  changed.SignalAll();
}

// Waits until some server may be asked. kCancelled, kUnavailable if the call is to wait no more,
// kNotFound if no server has these rewards.
absl::StatusOr<Turn> RewardClient::Impl::Next(ScoreCall& call,
                                              const std::vector<std::string>& wanted,
                                              absl::Duration end) {
  {
    absl::MutexLock lock(&call.mutex);
    if (!call.absence.ok()) return call.absence;
  }
  absl::MutexLock lock(&mutex);
  while (true) {
    if (cancelled) return absl::CancelledError("scoring was cancelled");
    const absl::Duration now = options.clock->Now();
    if (now >= end) return absl::UnavailableError("the time for scoring is over");
    if (auto turn = directory.Next(wanted, now, options.timeout); turn.has_value()) return *turn;
    if (call.waits && impatient) return absl::UnavailableError("no longer waits");
    const absl::Duration rest_over = directory.RestOver(wanted);
    if (rest_over == absl::InfiniteDuration()) {
      // They may have them by the next time.
      for (size_t server = 0; server < lines.size(); ++server) directory.Forget(server);
      return absl::NotFoundError(
          absl::StrCat("no reward server has ", absl::StrJoin(wanted, ", ")));
    }
    changed.WaitWithTimeout(&mutex, std::max(std::min({end - now, kWaitSlice, rest_over - now}),
                                             absl::Milliseconds(1)));
  }
}

void RewardClient::Impl::Waiting::Begin(const absl::Status& why) {
  absl::MutexLock lock(&impl_.mutex);
  impl_.waiting_for = std::string(why.message());
  if (std::exchange(waits_, true)) return;
  if (++impl_.waiting_calls > 1) return;
  OXBOW_LOG(Warning) << "no reward server answers: waiting for one" << Field("reason", why);
}

RewardClient::Impl::Waiting::~Waiting() {
  absl::MutexLock lock(&impl_.mutex);
  if (!waits_) return;
  if (--impl_.waiting_calls > 0) return;
  OXBOW_LOG(Info) << "no longer waits for a reward server";
}

std::string RewardClient::waiting() const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->waiting_calls > 0 ? impl_->waiting_for : "";
}

void RewardClient::GiveUpWaiting() {
  absl::MutexLock lock(&impl_->mutex);
  impl_->impatient = true;
  impl_->changed.SignalAll();
}

void RewardClient::Cancel() {
  absl::MutexLock lock(&impl_->mutex);
  impl_->cancelled = true;
  for (grpc::ClientContext* context : impl_->running) context->TryCancel();
  impl_->changed.SignalAll();
}

// Sends a batch to one server, under one deadline, and stores its answers. Returns the rewards that
// it did not answer for.
Absences RewardClient::Impl::TryBatch(size_t server, ScoreCall& call, const ScoreBatch& batch,
                                      absl::Duration timeout) {
  Absences absences;
  const absl::Status status = Exchange(server, call, batch, timeout, absences);
  // It has other rewards than it said, or may have them when it comes back.
  if (absl::IsNotFound(status) || absl::IsUnavailable(status)) {
    absl::MutexLock lock(&mutex);
    directory.Forget(server);
  }
  for (const std::string& reward : batch.rewards) {
    const auto open = Unanswered(call, {.images = batch.images, .rewards = {reward}});
    if (!open.has_value() || absences.contains(reward)) continue;
    if (IsAbsence(status)) {
      absences[reward] = status;
    } else {
      Settle(call, *open,
             !status.ok() ? StatusOfCall(status, options.endpoints[server])
                          : absl::InternalError(absl::StrCat("no answer for images of the batch: ",
                                                             open->images.size())));
    }
  }
  return absences;
}

absl::Status RewardClient::Impl::Exchange(size_t server, ScoreCall& call, const ScoreBatch& batch,
                                          absl::Duration timeout, Absences& absences) {
  size_t batch_max = 1;
  {
    absl::MutexLock lock(&mutex);
    batch_max = directory.BatchMax(server);
  }
  const Cancellable context(*this, timeout);
  // The call's beginning leaves with the first message, and its end with the last: of small
  // pictures all of it is one packet, and the server wakes once.
  context.get()->set_initial_metadata_corked(true);
  const auto stub = lines[server]->stub();
  const auto stream = stub->Score(context.get());
  // Where it stops, Finish says why.
  WriteBatch(call, batch, batch_max, [&](const v1::ScoreRequest& request, bool last) {
    grpc::WriteOptions end;
    if (last) end.set_last_message();
    return stream->Write(request, end);
  });
  std::set<uint64_t> open(batch.images.begin(), batch.images.end());
  v1::ScoreResponse response;
  while (stream->Read(&response)) {
    if (open.erase(response.item()) == 0) continue;  // Not requested, or answered already.
    auto outcomes = OutcomesOf(response, batch.rewards, options.endpoints[server]);
    absl::MutexLock lock(&call.mutex);
    for (auto& [reward, outcome] : outcomes) {
      if (IsAbsence(outcome.status())) {
        absences.try_emplace(reward, outcome.status());
      } else {
        call.outcomes[response.item()].try_emplace(reward, std::move(outcome));
      }
    }
  }
  const absl::Status status = rpc::FromGrpc(stream->Finish());
  lines[server]->Ended(status);
  return WithPause(status, *context.get(), absences);
}

}  // namespace oxbow::reward
