// SPDX-License-Identifier: Apache-2.0
#include "services/reward/reward_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/build_version.h"
#include "base/check.h"
#include "base/first_part.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/trace.h"
#include "rpc/protocol_revision.h"
#include "rpc/retry.h"
#include "rpc/status.h"
#include "services/reward/score_messages.h"

namespace oxbow::reward {
namespace {

constexpr std::string_view kPrefix = "oxbow.v1.Reward/";

constexpr int kScoreMethod = 1;        // Its index in service Reward.
constexpr size_t kTextMax = 16 << 10;  // Bytes of a reason or a note.

absl::Status StillLoads() {
  return absl::UnavailableError("this server is still loading its rewards");
}

// Why no further piece came.
absl::Status CutShort(const RewardService::ScoreStream& stream) {
  if (stream.cancelled()) return absl::CancelledError("the client is gone");
  return absl::InvalidArgumentError("the call ended before all pieces of its media had come");
}

}  // namespace

RewardHealth::RewardHealth(const std::vector<std::string>& rewards) {
  absl::MutexLock lock(&mutex_);
  for (const std::string& reward : rewards) failures_[reward] = 0;
}

void RewardHealth::Ready() {
  absl::MutexLock lock(&mutex_);
  ready_ = true;
}

bool RewardHealth::BatchScored(const std::string& reward, size_t scored, size_t failed) {
  absl::MutexLock lock(&mutex_);
  int& failures = failures_[reward];
  if (scored > 0) {
    failures = 0;
  } else if (failed > 0 && failures < kFailuresMax) {
    ++failures;
  }
  return failures < kFailuresMax;
}

std::optional<bool> RewardHealth::Serves(std::string_view service) const {
  absl::MutexLock lock(&mutex_);
  if (service.empty() || service == kPrefix.substr(0, kPrefix.size() - 1)) return ready_;
  if (!service.starts_with(kPrefix)) return std::nullopt;
  const auto reward = failures_.find(service.substr(kPrefix.size()));
  if (reward == failures_.end()) return std::nullopt;
  return ready_ && reward->second < kFailuresMax;
}

// Shared with the queues, which may finish after the call.
struct RewardService::Work {
  // Takes the call's request. Decodes what is to be decoded.
  Work(Call& call, ScoreAssembly assembly, uint64_t group);

  // The answer of one scorer: a result for each of `items`. Wakes the stream after the last.
  void Finish(size_t scorer, ScorerQueue::Results scored);
  // The same status for each of `items`.
  void Settle(size_t scorer, const absl::Status& status) {
    Finish(scorer, ScorerQueue::Results(items.size(), status));
  }
  // True when the last scorer has answered.
  bool done() {
    absl::MutexLock lock(&mutex);
    return open == 0;
  }

  std::shared_ptr<rpc::StreamBase> stream;  // Outlives the wait for the last answer.
  v1::ScoreRequest request;                 // Without pixels.
  std::vector<Scorer*> scorers;
  MediaLease lease;                                         // The frames' memory.
  std::vector<absl::StatusOr<std::vector<Image8>>> frames;  // By item of the request.
  std::vector<Item> items;                                  // That can be scored at all.
  std::vector<size_t> places;                               // Where `items` are in the request.
  std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);

  absl::Mutex mutex;
  size_t open ABSL_GUARDED_BY(mutex);  // Scorers that have not answered.
  // By scorer, then by item of the request.
  std::vector<ScorerQueue::Results> results ABSL_GUARDED_BY(mutex);
};

RewardService::Work::Work(Call& call, ScoreAssembly assembly, uint64_t group)
    : scorers(std::move(call.scorers)), lease(assembly.lease()), open(scorers.size()) {
  request.Swap(&call.request);
  frames = assembly.TakeMedia();
  ScorerQueue::Results unscored;
  for (const auto& medium : frames) {
    unscored.emplace_back(medium.ok() ? absl::UnknownError("not scored") : medium.status());
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    if (!frames[i].ok()) continue;
    places.push_back(i);
    items.push_back(
        {.prompt = request.prompt().text(),
         .metadata_json = request.prompt().metadata_json(),
         .frames = *frames[i],
         .group = group,
         .frames_every = std::max(1U, request.items(static_cast<int>(i)).image().frames_every())});
  }
  absl::MutexLock lock(&mutex);
  results.assign(scorers.size(), unscored);
}

void RewardService::Work::Finish(size_t scorer, ScorerQueue::Results scored) {
  bool last = false;
  {
    absl::MutexLock lock(&mutex);
    for (size_t i = 0; i < scored.size(); ++i) results[scorer][places[i]] = std::move(scored[i]);
    last = --open == 0;
  }
  if (last) stream->Wake();
}

RewardService::RewardService(Options options, const std::vector<std::string>& rewards,
                             const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      health_(rewards),
      room_(options_.media_bytes_max) {
  runner_.emplace(options_.streams);
  MarkMethodStreamed(kScoreMethod, nullptr);
  MarkMethodCallback(kScoreMethod,
                     rpc::StreamHandler<v1::ScoreRequest, v1::ScoreResponse>(
                         *runner_, [this](ScoreStream& stream) { return Score(stream); }));
}

RewardService::RewardService(Options options, const ScorerPanel& panel, RewardMetrics& metrics,
                             const Clock& clock)
    : RewardService(std::move(options), panel.names(), clock) {
  Open(panel, metrics);
}

void RewardService::Open(const ScorerPanel& panel, RewardMetrics& metrics) {
  OXBOW_CHECK(!open_) << "opened twice";
  panel_ = &panel;
  metrics_ = &metrics;
  for (const auto& scorer : panel.scorers()) {
    queues_[scorer.get()] = std::make_unique<ScorerQueue>(
        options_.queue, *scorer, clock_, [this, &scorer](const ScorerQueue::Batch& batch) {
          const RewardFacts& facts = scorer->facts();
          metrics_->BatchScored(facts, batch.items, batch.waited, batch.took);
          metrics_->Serves(facts.name, health_.BatchScored(facts.name, batch.scored, batch.failed));
          if (!batch.broken.ok()) options_.broken(batch.broken);
        });
  }
  open_ = true;
  health_.Ready();
}

RewardService::~RewardService() {
  runner_.reset();  // Waits for the streams, which wait for their batches.
}

grpc::Status RewardService::Describe(grpc::ServerContext* /*context*/,
                                     const v1::DescribeRequest* /*request*/,
                                     v1::DescribeResponse* response) {
  if (!open_) return rpc::ToGrpc(StillLoads());
  for (const auto& scorer : panel_->scorers()) {
    reward::Describe(scorer->facts(), *response->add_rewards());
  }
  response->set_batch_max(options_.batch_max);
  response->set_version(BuildVersion());
  response->set_protocol(kProtocolRevision);
  response->set_unix_time(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  return grpc::Status::OK;
}

rpc::Handler RewardService::Score(ScoreStream& stream) {
  if (!open_) co_return StillLoads();
  const absl::Duration start = clock_.Now();
  Call call{.stream = stream};
  while (co_await stream.Read(call.request)) {
    call.since = clock_.Now();
    absl::StatusOr<ScoreAssembly> assembly = Begin(call);
    while (assembly.ok() && !assembly->whole()) {
      const bool came = co_await stream.Read(call.pieces);
      const absl::Status added = came ? assembly->Add(call.pieces) : CutShort(stream);
      if (!added.ok()) assembly = added;
    }
    if (!assembly.ok()) co_return Ended(start, assembly.status());
    const absl::StatusOr<std::shared_ptr<Work>> work = Start(call, *std::move(assembly));
    if (!work.ok()) co_return Ended(start, work.status());
    while (!(*work)->done()) {
      co_await stream.Wait();
      if (!stream.cancelled() || (*work)->gone->exchange(true)) continue;
      for (Scorer* scorer : (*work)->scorers) queues_.at(scorer)->DropGone();
    }
    if (stream.cancelled()) co_return Ended(start, absl::CancelledError("the client is gone"));
    Answer(call, **work);
  }
  co_return Ended(start, absl::OkStatus());
}

absl::Status RewardService::Ended(absl::Duration start, const absl::Status& status) {
  metrics_->CallEnded(clock_.Now() - start, status.ok());
  return status;
}

// Begins the batch of a request: nothing of it is decoded yet.
absl::StatusOr<ScoreAssembly> RewardService::Begin(Call& call) {
  const v1::ScoreRequest& request = call.request;
  metrics_->BatchArrived(request.items_size());
  if (request.items_size() > static_cast<int>(options_.batch_max)) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch has more items than Describe's batch_max: ", request.items_size(),
                     " over ", options_.batch_max));
  }
  OXBOW_ASSIGN_OR_RETURN(call.scorers,
                         panel_->Select({request.rewards().begin(), request.rewards().end()}));
  return ScoreAssembly::Begin(call.request, options_.medium_bytes_max, room_);
}

// Gives a whole batch to its scorers.
absl::StatusOr<std::shared_ptr<RewardService::Work>> RewardService::Start(Call& call,
                                                                          ScoreAssembly assembly) {
  // Groups of different callers are never one: the number is this server's own.
  auto work = std::make_shared<Work>(call, std::move(assembly), ++groups_);
  work->stream = call.stream.shared_from_this();
  std::vector<absl::Status> refusals;
  for (size_t i = 0; i < work->scorers.size(); ++i) {
    const absl::Status status = Queue(work, i);
    if (status.ok()) continue;
    if (absl::IsResourceExhausted(status)) refusals.push_back(status);
    if (const auto pause = rpc::RetryAfterOf(status)) call.stream.AskAgainIn(*pause);
    work->Settle(i, status);
  }
  // A client of before takes the refusal of one reward for an answer.
  const bool all = refusals.size() == work->scorers.size();
  if (refusals.empty() || (!all && work->request.group() != 0)) return work;
  *work->gone = true;
  for (Scorer* scorer : work->scorers) queues_.at(scorer)->DropGone();
  return refusals.front();
}

// Gives the items to one scorer; an error if it does not take them.
absl::Status RewardService::Queue(const std::shared_ptr<Work>& work, size_t scorer) {
  const RewardFacts& facts = work->scorers[scorer]->facts();
  if (facts.groupwise && !work->request.group_complete()) {
    return absl::InvalidArgumentError(absl::StrCat(
        facts.name, " compares the items of a group: send it whole, as group_complete"));
  }
  if (work->items.empty()) {
    work->Finish(scorer, {});
    return absl::OkStatus();
  }
  if (facts.groupwise && work->items.size() < work->frames.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(facts.name, ": another item of the group cannot be scored"));
  }
  return queues_.at(work->scorers[scorer])
      ->Push({.items = work->items,
              .memory = work,
              .gone = work->gone,
              .done = [work = work.get(), scorer](ScorerQueue::Results results) {
                work->Finish(scorer, std::move(results));
              }});
}

void RewardService::Answer(Call& call, Work& work) {
  const TraceScope scope(call.stream.trace());
  uint64_t failed = 0;
  absl::Status failure;  // The first one.
  absl::MutexLock lock(&work.mutex);
  for (int i = 0; i < work.request.items_size(); ++i) {
    v1::ScoreResponse response;
    response.set_item(work.request.items(i).item());
    for (size_t scorer = 0; scorer < work.scorers.size(); ++scorer) {
      AddOutcome(work.scorers[scorer]->facts().name, work.results[scorer][i], response);
    }
    if (response.status_code() != 0) {
      ++failed;
      failure.Update(absl::Status(static_cast<absl::StatusCode>(response.status_code()),
                                  response.status_message()));
      // For clients that do not know outcomes a partial answer would be a complete one.
      response.clear_rewards();
    }
    call.stream.Send(std::move(response));
  }
  if (!failure.ok()) {
    OXBOW_LOG(Warning) << "images not scored" << Field("images", work.request.items_size())
                       << Field("failed", failed) << Field("reason", failure.message());
  }
  OXBOW_LOG(Debug) << "images scored" << Field("images", work.request.items_size())
                   << Field("seconds", absl::ToDoubleSeconds(clock_.Now() - call.since));
}

void RewardService::AddOutcome(const std::string& reward,
                               const absl::StatusOr<reward::Score>& score,
                               v1::ScoreResponse& response) {
  v1::RewardOutcome& outcome = *response.add_outcomes();
  outcome.set_name(reward);
  if (!score.ok()) {
    metrics_->ItemRefused(reward, score.status());
    outcome.set_status_code(static_cast<int32_t>(score.status().code()));
    outcome.set_status_message(FirstPart(std::string(score.status().message()), kTextMax));
    if (response.status_code() != 0) return;
    response.set_status_code(outcome.status_code());
    response.set_status_message(outcome.status_message());
    return;
  }
  metrics_->ItemScored(reward, *score);
  outcome.set_value(score->value);
  outcome.set_note(FirstPart(score->note, kTextMax));
  v1::NamedValue& value = *response.add_rewards();
  value.set_name(reward);
  value.set_value(score->value);
}

}  // namespace oxbow::reward
