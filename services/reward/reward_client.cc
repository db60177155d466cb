#include "services/reward/reward_client.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/retry.h"
#include "rpc/status.h"

namespace oxbow::reward {
namespace {

constexpr uint64_t kBatchBytesMax = rpc::kMessageBytesMax / 2;  // Leaves room for the rest.
constexpr absl::Duration kDescribeTimeoutMax = absl::Seconds(10);
constexpr absl::Duration kBackoff = absl::Milliseconds(50);     // Before the next try.
constexpr absl::Duration kBusyFirst = absl::Milliseconds(100);  // While all servers are busy.
constexpr absl::Duration kBusyMax = absl::Seconds(5);

// One reward server. Thread-safe.
struct Replica {
  Replica(std::string at, const std::shared_ptr<grpc::Channel>& channel)
      : endpoint(std::move(at)), stub(v1::Reward::NewStub(channel)) {}
  const std::string endpoint;
  const std::unique_ptr<v1::Reward::Stub> stub;
  std::atomic<int64_t> resting_until_ns = 0;
};

// Scoring has no side effects, so a call that failed for reasons other than the request may be
// repeated.
bool IsTransportFailure(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kAborted:
      return true;
    default:
      return false;
  }
}

using Result = absl::StatusOr<Scores>;

// All wanted rewards of one response, all finite, or an error.
Result ScoresOf(const v1::ScoreResponse& response, const std::vector<std::string>& wanted,
                const std::string& endpoint) {
  if (response.status_code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(response.status_code()),
                        response.status_message());
  }
  Scores given;
  for (const v1::NamedValue& value : response.rewards()) given[value.name()] = value.value();
  Scores scores;
  for (const std::string& name : wanted) {
    const auto found = given.find(name);
    if (found == given.end()) {
      return absl::InternalError(absl::StrCat("answer lacks reward ", name, ": ", endpoint));
    }
    if (!std::isfinite(found->second)) {
      return absl::InternalError(
          absl::StrCat("reward ", name, " is not finite (", found->second, "): ", endpoint));
    }
    scores[name] = found->second;
  }
  return scores;
}

}  // namespace

struct RewardClient::Impl {
  explicit Impl(Options o) : options(std::move(o)) {}

  absl::Status Describe();
  absl::Status CheckDescription(const std::string& endpoint, const v1::DescribeResponse& response);
  std::vector<Replica*> ReplicasInTurn();
  std::vector<std::vector<size_t>> Split(const std::vector<Image8>& images,
                                         std::vector<std::optional<Result>>& results) const;
  void ScoreBatch(const v1::Prompt& prompt, const std::vector<Image8>& images,
                  const std::vector<size_t>& batch, const Pause& pause,
                  std::vector<std::optional<Result>>& results);
  Pause PauseUpToBusyMax() const;
  absl::Status TryBatch(Replica& replica, const v1::Prompt& prompt,
                        const std::vector<Image8>& images, const std::vector<size_t>& batch,
                        std::vector<std::optional<Result>>& results);

  Options options;  // Describe fills in `rewards` and `batch_max`.
  size_t batch_max = 0;
  std::vector<std::unique_ptr<Replica>> replicas;
  std::atomic<uint64_t> turn = 0;
};

absl::StatusOr<std::unique_ptr<RewardClient>> RewardClient::Create(Options options) {
  if (options.endpoints.empty()) {
    return absl::InvalidArgumentError("no reward server endpoint is given");
  }
  OXBOW_CHECK(options.tries >= 1) << options.tries << " tries";
  auto impl = std::make_unique<Impl>(std::move(options));
  for (const std::string& endpoint : impl->options.endpoints) {
    impl->replicas.push_back(std::make_unique<Replica>(endpoint, rpc::Connect(endpoint)));
  }
  OXBOW_RETURN_IF_ERROR(impl->Describe());
  return std::unique_ptr<RewardClient>(new RewardClient(std::move(impl)));
}

RewardClient::RewardClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RewardClient::~RewardClient() = default;

absl::Status RewardClient::Impl::Describe() {
  absl::Status failure;
  bool answered = false;
  for (const auto& replica : replicas) {
    v1::DescribeResponse response;
    const absl::Status status = rpc::Retry({}, [&] {
      const auto context = rpc::ContextWithDeadline(std::min(options.timeout, kDescribeTimeoutMax));
      return rpc::FromGrpc(replica->stub->Describe(context.get(), {}, &response));
    });
    if (!status.ok()) {
      OXBOW_LOG(Warning) << "reward server does not answer" << Field("endpoint", replica->endpoint)
                         << Field("status", status);
      failure = status;
      continue;
    }
    OXBOW_RETURN_IF_ERROR(CheckDescription(replica->endpoint, response));
    answered = true;
  }
  if (answered) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("no reward server answers (is it running?): ", options.endpoints.front(), ": ",
                   std::string(failure.message())));
}

absl::Status RewardClient::Impl::CheckDescription(const std::string& endpoint,
                                                  const v1::DescribeResponse& response) {
  std::set<std::string> known;
  for (const v1::RewardDescription& reward : response.rewards()) known.insert(reward.name());
  if (options.rewards.empty()) options.rewards.assign(known.begin(), known.end());
  for (const std::string& name : options.rewards) {
    if (known.contains(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("reward server ", endpoint, " does not know reward (its --rewards): ", name));
  }
  const size_t limit = std::max<size_t>(response.batch_max(), 1);
  batch_max = batch_max == 0 ? limit : std::min(batch_max, limit);
  return absl::OkStatus();
}

// Round robin; replicas that failed recently come last.
std::vector<Replica*> RewardClient::Impl::ReplicasInTurn() {
  const uint64_t first = turn.fetch_add(1);
  std::vector<Replica*> order;
  for (size_t i = 0; i < replicas.size(); ++i) {
    order.push_back(replicas[(first + i) % replicas.size()].get());
  }
  const int64_t now = absl::ToInt64Nanoseconds(options.clock->Now());
  std::stable_partition(order.begin(), order.end(),
                        [&](Replica* replica) { return replica->resting_until_ns.load() <= now; });
  return order;
}

// Cuts batches of at most batch_max images and kBatchBytesMax bytes. An image that is too large for
// any batch gets its error here.
std::vector<std::vector<size_t>> RewardClient::Impl::Split(
    const std::vector<Image8>& images, std::vector<std::optional<Result>>& results) const {
  std::vector<std::vector<size_t>> batches;
  uint64_t bytes = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    const uint64_t size = images[i].pixels.size();
    if (size > kBatchBytesMax) {
      results[i] = absl::InvalidArgumentError(
          absl::StrCat("image is too large to send: ", size, " bytes over ", kBatchBytesMax));
      continue;
    }
    if (batches.empty() || batches.back().size() >= batch_max || bytes + size > kBatchBytesMax) {
      batches.emplace_back();
      bytes = 0;
    }
    batches.back().push_back(i);
    bytes += size;
  }
  return batches;
}

std::vector<absl::StatusOr<Scores>> RewardClient::Score(const std::string& prompt_text,
                                                        const std::string& prompt_metadata_json,
                                                        const std::vector<Image8>& images,
                                                        const Pause& pause) {
  v1::Prompt prompt;
  prompt.set_text(prompt_text);
  prompt.set_metadata_json(prompt_metadata_json);
  std::vector<std::optional<Result>> results(images.size());
  for (const std::vector<size_t>& batch : impl_->Split(images, results)) {
    impl_->ScoreBatch(prompt, images, batch, pause ? pause : impl_->PauseUpToBusyMax(), results);
  }
  std::vector<Result> scores;
  for (std::optional<Result>& result : results) scores.push_back(*std::move(result));
  return scores;
}

RewardClient::Pause RewardClient::Impl::PauseUpToBusyMax() const {
  return [left = options.busy_max](absl::Duration wait) mutable {
    if (left <= absl::ZeroDuration()) return false;
    left -= wait;
    absl::SleepFor(wait);
    return true;
  };
}

// Sets every result of the batch.
void RewardClient::Impl::ScoreBatch(const v1::Prompt& prompt, const std::vector<Image8>& images,
                                    const std::vector<size_t>& batch, const Pause& pause,
                                    std::vector<std::optional<Result>>& results) {
  const std::vector<Replica*> order = ReplicasInTurn();
  rpc::Backoff busy(kBusyFirst, kBusyMax);
  absl::Status status;
  int failures = 0;
  for (size_t asked = 0; failures < options.tries;) {
    Replica& replica = *order[asked % order.size()];
    const bool all_asked = ++asked % order.size() == 0;
    status = TryBatch(replica, prompt, images, batch, results);
    if (status.ok()) return;
    status = Annotate(status, absl::StrCat("reward server ", replica.endpoint));
    if (rpc::FailureOf(status) == rpc::Failure::kBusy) {
      if (all_asked && !pause(busy.Next())) break;
      continue;
    }
    if (!IsTransportFailure(status)) break;
    ++failures;
    OXBOW_LOG(Warning) << "scoring failed" << Field("endpoint", replica.endpoint)
                       << Field("status", status) << Field("attempt", failures);
    replica.resting_until_ns = absl::ToInt64Nanoseconds(options.clock->Now() + options.rest);
    if (asked >= order.size() && failures < options.tries) {
      absl::SleepFor(rpc::Jittered(failures * kBackoff));
    }
  }
  for (const size_t i : batch) {
    if (!results[i].has_value()) results[i] = status;
  }
}

// Sends the images that have no result yet to one replica, under one deadline, and stores its
// answers.
absl::Status RewardClient::Impl::TryBatch(Replica& replica, const v1::Prompt& prompt,
                                          const std::vector<Image8>& images,
                                          const std::vector<size_t>& batch,
                                          std::vector<std::optional<Result>>& results) {
  v1::ScoreRequest request;
  *request.mutable_prompt() = prompt;
  for (const std::string& name : options.rewards) request.add_rewards(name);
  std::set<size_t> open;
  for (const size_t i : batch) {
    if (results[i].has_value()) continue;
    open.insert(i);
    v1::ScoreItem& item = *request.add_items();
    item.set_item(i);
    item.mutable_image()->set_width(images[i].width);
    item.mutable_image()->set_height(images[i].height);
    item.mutable_image()->set_channels(images[i].channels);
    item.mutable_image()->set_frames(1);
    item.mutable_image()->set_pixels(images[i].pixels.data(), images[i].pixels.size());
  }
  const auto context = rpc::ContextWithDeadline(options.timeout);
  const auto stream = replica.stub->Score(context.get());
  stream->Write(request);  // Finish reports a failed write.
  stream->WritesDone();
  v1::ScoreResponse response;
  while (stream->Read(&response)) {
    if (open.erase(response.item()) == 0) continue;  // Not requested, or answered already.
    results[response.item()] = ScoresOf(response, options.rewards, replica.endpoint);
  }
  OXBOW_RETURN_IF_ERROR(rpc::FromGrpc(stream->Finish()));
  if (open.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("no answer for images of the batch: ", open.size()));
}

}  // namespace oxbow::reward
