#include "services/reward/reward_service.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/trace.h"

namespace oxbow::reward {
namespace {

constexpr int kScoreMethod = 1;  // Its index in service Reward.

// The image of the message. No scorer of this build supports videos.
absl::StatusOr<Image8> TakeImage(const v1::Image& message) {
  if (message.frames() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("no scorer here reads videos: ", message.frames(), " frames"));
  }
  Image8 image{.width = static_cast<int>(message.width()),
               .height = static_cast<int>(message.height()),
               .channels = static_cast<int>(message.channels()),
               .pixels = {message.pixels().begin(), message.pixels().end()}};
  OXBOW_RETURN_IF_ERROR(Validate(image));
  return image;
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
    v1::RewardDescription& description = *response->add_rewards();
    description.set_name(scorer->name());
    description.set_value_min(scorer->value_min());
    description.set_value_max(scorer->value_max());
    description.set_help(scorer->help());
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
  OXBOW_ASSIGN_OR_RETURN(std::vector<const Scorer*> scorers,
                         panel_.Select({request.rewards().begin(), request.rewards().end()}));
  const auto score = [this, &call, scorers = std::move(scorers)] { ScoreBatch(call, scorers); };
  if (batches_.Push(score, absl::ZeroDuration())) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("busy: ", options_.waiting_max,
                   " batches wait already; ask again later, or "
                   "start more reward servers or raise --waiting-max"));
}

void RewardService::ScoreBatch(Call& call, const std::vector<const Scorer*>& scorers) {
  for (v1::ScoreItem& item : *call.request.mutable_items()) {
    if (call.stream.cancelled()) break;
    v1::ScoreResponse response = ScoreItem(call.request.prompt(), item, scorers);
    ++call.images;
    if (response.status_code() != 0) {
      ++call.failed;
      call.failure.Update(absl::Status(static_cast<absl::StatusCode>(response.status_code()),
                                       response.status_message()));
    }
    call.stream.Send(std::move(response));
  }
  // The call may be gone as soon as `scored` is set and it wakes by itself.
  const std::shared_ptr<rpc::StreamBase> stream = call.stream.shared_from_this();
  call.scored = true;
  stream->Wake();
}

v1::ScoreResponse RewardService::ScoreItem(const v1::Prompt& prompt, v1::ScoreItem& item,
                                           const std::vector<const Scorer*>& scorers) {
  v1::ScoreResponse response;
  response.set_item(item.item());
  const absl::StatusOr<Image8> image = TakeImage(item.image());
  absl::Status failure;
  for (const Scorer* scorer : scorers) {
    const absl::StatusOr<double> score =
        image.ok() ? ScoreOne(*scorer, prompt.text(), prompt.metadata_json(), *image)
                   : absl::StatusOr<double>(image.status());
    if (!score.ok()) {
      metrics_.ItemRefused(scorer->name(), score.status());
      failure.Update(score.status());
      continue;
    }
    metrics_.ItemScored(scorer->name(), *score);
    v1::NamedValue& value = *response.add_rewards();
    value.set_name(scorer->name());
    value.set_value(*score);
  }
  if (!failure.ok()) {
    // All wanted rewards or none: a partial answer would be taken for a complete one.
    response.clear_rewards();
    response.set_status_code(static_cast<int32_t>(failure.code()));
    response.set_status_message(std::string(failure.message()));
  }
  return response;
}

}  // namespace oxbow::reward
