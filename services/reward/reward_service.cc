#include "services/reward/reward_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/trace.h"

namespace oxbow::reward {
namespace {

constexpr uint64_t kFramesMax = 4096;
constexpr int kScoreMethod = 1;  // Its index in service Reward.

// The picture of the message, or the frames of its video.
absl::StatusOr<std::vector<Image8>> TakeFrames(const v1::Image& message) {
  if (!message.encoding().empty() || message.pixels_size() > message.pixels().size()) {
    return absl::UnimplementedError("this server reads raw pixels in one piece alone");
  }
  const uint64_t count = std::max(message.frames(), 1U);
  const uint64_t bytes = message.pixels().size();
  if (count > kFramesMax || bytes % count != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("video has other bytes than its frames say: ", bytes, " for ", count));
  }
  std::vector<Image8> frames;
  for (uint64_t i = 0; i < count; ++i) {
    const auto begin = message.pixels().begin() + static_cast<int64_t>(i * (bytes / count));
    frames.push_back({.width = static_cast<int>(message.width()),
                      .height = static_cast<int>(message.height()),
                      .channels = static_cast<int>(message.channels()),
                      .pixels = {begin, begin + static_cast<int64_t>(bytes / count)}});
    OXBOW_RETURN_IF_ERROR(Validate(frames.back()));
  }
  return frames;
}

// The items of a request that can be scored at all, and what is wrong with the others.
struct Batch {
  explicit Batch(v1::ScoreRequest& request) {
    for (v1::ScoreItem& item : *request.mutable_items()) {
      frames.push_back(TakeFrames(item.image()));
      item.mutable_image()->clear_pixels();
    }
    for (size_t i = 0; i < frames.size(); ++i) {
      if (!frames[i].ok()) continue;
      places.push_back(i);
      items.push_back({.prompt = request.prompt().text(),
                       .metadata_json = request.prompt().metadata_json(),
                       .frames = *frames[i],
                       .group = request.group()});
    }
  }
  std::vector<absl::StatusOr<std::vector<Image8>>> frames;  // By item of the request.
  std::vector<Item> items;
  std::vector<size_t> places;  // Where `items` are in the request.
};

// What the scorer says of each item of the request.
std::vector<absl::StatusOr<reward::Score>> ScoresOf(Scorer& scorer, const Batch& batch,
                                                    bool group_complete) {
  std::vector<absl::StatusOr<reward::Score>> scores;
  for (const auto& frames : batch.frames) {
    scores.emplace_back(frames.ok() ? absl::UnknownError("not scored") : frames.status());
  }
  if (scorer.facts().groupwise && !group_complete) {
    const absl::Status status = absl::InvalidArgumentError(absl::StrCat(
        scorer.facts().name, " compares the items of a group: send it whole, as group_complete"));
    return {scores.size(), status};
  }
  auto given = ScoreItems(scorer, batch.items);
  for (size_t i = 0; i < given.size(); ++i) scores[batch.places[i]] = std::move(given[i]);
  return scores;
}

void Describe(const RewardFacts& facts, v1::RewardDescription& description) {
  description.set_name(facts.name);
  description.set_value_min(facts.value_min);
  description.set_value_max(facts.value_max);
  description.set_groupwise(facts.groupwise);
  description.set_help(facts.help);
  description.set_identity(facts.identity);
  if (facts.images) description.add_media("image");
  if (facts.videos) description.add_media("video");
  for (const std::string& key : facts.metadata_keys) description.add_metadata_keys(key);
  description.set_batch_max(facts.batch_max);
}

}  // namespace

RewardService::RewardService(Options options, const ScorerPanel& panel, RewardMetrics& metrics,
                             const Clock& clock)
    : options_(options),
      panel_(panel),
      metrics_(metrics),
      clock_(clock),
      batches_(options.waiting_max) {
  runner_.emplace(options.streams);
  for (uint32_t i = 0; i < options.threads; ++i) {
    scoring_.emplace_back([this] {
      while (const auto batch = batches_.Pop()) (*batch)();
    });
  }
  MarkMethodStreamed(kScoreMethod, nullptr);
  MarkMethodCallback(kScoreMethod,
                     rpc::StreamHandler<v1::ScoreRequest, v1::ScoreResponse>(
                         *runner_, [this](ScoreStream& stream) { return Score(stream); }));
}

RewardService::~RewardService() {
  runner_.reset();  // Waits for the streams, which wait for their batches.
  batches_.Drain();
  for (std::thread& thread : scoring_) thread.join();
}

grpc::Status RewardService::Describe(grpc::ServerContext* /*context*/,
                                     const v1::DescribeRequest* /*request*/,
                                     v1::DescribeResponse* response) {
  for (const auto& scorer : panel_.scorers()) {
    reward::Describe(scorer->facts(), *response->add_rewards());
  }
  response->set_batch_max(options_.batch_max);
  response->set_version(OXBOW_VERSION);
  response->set_unix_time(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  return grpc::Status::OK;
}

rpc::Handler RewardService::Score(ScoreStream& stream) {
  const absl::Duration start = clock_.Now();
  Call call{.stream = stream};
  while (co_await stream.Read(call.request)) {
    call.scored = false;
    if (const absl::Status status = Queue(call); !status.ok()) co_return Ended(call, start, status);
    while (!call.scored) co_await stream.Wait();
    if (stream.cancelled())
      co_return Ended(call, start, absl::CancelledError("the client is gone"));
  }
  co_return Ended(call, start, absl::OkStatus());
}

absl::Status RewardService::Ended(const Call& call, absl::Duration start,
                                  const absl::Status& status) {
  const TraceScope scope(call.stream.trace());
  const absl::Duration took = clock_.Now() - start;
  metrics_.CallEnded(took, status.ok());
  if (!call.failure.ok()) {
    OXBOW_LOG(Warning) << "images not scored" << Field("images", call.images)
                       << Field("failed", call.failed) << Field("reason", call.failure.message());
  }
  OXBOW_LOG(Debug) << "images scored" << Field("images", call.images)
                   << Field("seconds", absl::ToDoubleSeconds(took));
  return status;
}

absl::Status RewardService::Queue(Call& call) {
  const v1::ScoreRequest& request = call.request;
  metrics_.BatchArrived(request.items_size());
  if (request.items_size() > static_cast<int>(options_.batch_max)) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch has more items than Describe's batch_max: ", request.items_size(),
                     " over ", options_.batch_max));
  }
  OXBOW_ASSIGN_OR_RETURN(std::vector<Scorer*> scorers,
                         panel_.Select({request.rewards().begin(), request.rewards().end()}));
  const auto score = [this, &call, scorers = std::move(scorers)] { ScoreBatch(call, scorers); };
  if (batches_.Push(score, absl::ZeroDuration())) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("busy: ", options_.waiting_max,
                   " batches wait already; ask again later, or "
                   "start more reward servers or raise --waiting-max"));
}

void RewardService::ScoreBatch(Call& call, const std::vector<Scorer*>& scorers) {
  std::vector<v1::ScoreResponse> responses;
  for (const v1::ScoreItem& item : call.request.items()) {
    responses.emplace_back().set_item(item.item());
  }
  const Batch batch(call.request);
  for (Scorer* scorer : scorers) {
    if (call.stream.cancelled()) break;
    const auto scores = ScoresOf(*scorer, batch, call.request.group_complete());
    for (size_t i = 0; i < scores.size(); ++i) {
      AddOutcome(scorer->facts().name, scores[i], responses[i]);
    }
  }
  if (!call.stream.cancelled()) Answer(call, std::move(responses));
  // The call may be gone as soon as `scored` is set and it wakes by itself.
  const std::shared_ptr<rpc::StreamBase> stream = call.stream.shared_from_this();
  call.scored = true;
  stream->Wake();
}

void RewardService::Answer(Call& call, std::vector<v1::ScoreResponse> responses) {
  for (v1::ScoreResponse& response : responses) {
    ++call.images;
    if (response.status_code() != 0) {
      ++call.failed;
      call.failure.Update(absl::Status(static_cast<absl::StatusCode>(response.status_code()),
                                       response.status_message()));
      // For clients that do not know outcomes a partial answer would be a complete one.
      response.clear_rewards();
    }
    call.stream.Send(std::move(response));
  }
}

void RewardService::AddOutcome(const std::string& reward,
                               const absl::StatusOr<reward::Score>& score,
                               v1::ScoreResponse& response) {
  v1::RewardOutcome& outcome = *response.add_outcomes();
  outcome.set_name(reward);
  if (!score.ok()) {
    metrics_.ItemRefused(reward, score.status());
    outcome.set_status_code(static_cast<int32_t>(score.status().code()));
    outcome.set_status_message(std::string(score.status().message()));
    if (response.status_code() != 0) return;
    response.set_status_code(outcome.status_code());
    response.set_status_message(outcome.status_message());
    return;
  }
  metrics_.ItemScored(reward, score->value);
  outcome.set_value(score->value);
  outcome.set_note(score->note);
  v1::NamedValue& value = *response.add_rewards();
  value.set_name(reward);
  value.set_value(score->value);
}

}  // namespace oxbow::reward
