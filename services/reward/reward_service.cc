#include "services/reward/reward_service.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/status.h"
#include "rpc/trace.h"

namespace oxbow::reward {
namespace {

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
    : options_(options), panel_(panel), metrics_(metrics), clock_(clock) {}

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

grpc::Status RewardService::Score(grpc::ServerContext* context, Stream* stream) {
  const TraceScope scope(rpc::TraceOf(context));
  const absl::Duration start = clock_.Now();
  Tally tally;
  const absl::Status status = ScoreBatches(*context, *stream, tally);
  const absl::Duration took = clock_.Now() - start;
  metrics_.CallEnded(took, status.ok());
  if (!tally.failure.ok()) {
    OXBOW_LOG(Warning) << "images not scored" << Field("images", tally.images)
                       << Field("failed", tally.failed) << Field("reason", tally.failure.message());
  }
  OXBOW_LOG(Debug) << "images scored" << Field("images", tally.images)
                   << Field("seconds", absl::ToDoubleSeconds(took));
  return rpc::ToGrpc(status);
}

absl::Status RewardService::ScoreBatches(grpc::ServerContext& context, Stream& stream,
                                         Tally& tally) {
  v1::ScoreRequest request;
  while (stream.Read(&request)) {
    metrics_.BatchArrived(request.items_size());
    if (request.items_size() > static_cast<int>(options_.batch_max)) {
      return absl::InvalidArgumentError(
          absl::StrCat("batch has more items than Describe's batch_max: ", request.items_size(),
                       " over ", options_.batch_max));
    }
    OXBOW_ASSIGN_OR_RETURN(const std::vector<const Scorer*> scorers,
                           panel_.Select({request.rewards().begin(), request.rewards().end()}));
    for (v1::ScoreItem& item : *request.mutable_items()) {
      if (context.IsCancelled()) return absl::CancelledError("the client is gone");
      const v1::ScoreResponse response = ScoreItem(request.prompt(), item, scorers);
      ++tally.images;
      if (response.status_code() != 0) {
        ++tally.failed;
        tally.failure.Update(absl::Status(static_cast<absl::StatusCode>(response.status_code()),
                                          response.status_message()));
      }
      if (!stream.Write(response)) {
        return absl::CancelledError("the client is gone");
      }
    }
  }
  return absl::OkStatus();
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
