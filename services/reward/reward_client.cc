#include "services/reward/reward_client.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
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
constexpr absl::Duration kRestFirst = absl::Milliseconds(250);  // Between two descriptions.
constexpr absl::Duration kRestMax = absl::Seconds(5);
constexpr absl::Duration kWaitSlice = absl::Milliseconds(200);  // Between looks at the clock.

// One reward server. Thread-safe but for its breaker, which the client's lock guards.
struct Replica {
  Replica(std::string at, const std::shared_ptr<grpc::Channel>& channel,
          CircuitBreaker::Options options)
      : endpoint(std::move(at)), stub(v1::Reward::NewStub(channel)), breaker(options) {}
  const std::string endpoint;
  const std::unique_ptr<v1::Reward::Stub> stub;
  CircuitBreaker breaker;
};

// True if a call ended without a word of the reward itself. Scoring has no side effects, so such a
// call may be repeated.
bool IsAbsence(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status) || absl::IsResourceExhausted(status);
}

// The same reason under a code that is not taken for an absence.
absl::Status Answered(const absl::Status& status) {
  return IsAbsence(status) ? absl::InternalError(status.message()) : status;
}

using Result = absl::StatusOr<Scores>;

// All wanted rewards of one response, all finite, or an error.
Result ScoresOf(const v1::ScoreResponse& response, const std::vector<std::string>& wanted,
                const std::string& endpoint) {
  if (response.status_code() != 0) {
    return Annotate(Answered(absl::Status(static_cast<absl::StatusCode>(response.status_code()),
                                          response.status_message())),
                    absl::StrCat("reward server ", endpoint));
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

bool IsUnscorable(const absl::Status& status) { return !status.ok() && !IsAbsence(status); }

struct RewardClient::Impl {
  explicit Impl(Options o) : options(std::move(o)), random(std::random_device()()) {}

  // One call of Score.
  struct Call {
    v1::Prompt prompt;
    const std::vector<Image8>& images;
    bool waits = false;
    absl::Duration end;
    std::vector<std::optional<Result>> results;
  };

  absl::Status Describe();
  bool Rest(absl::Duration duration);
  absl::Status CheckDescription(const std::string& endpoint, const v1::DescribeResponse& response);
  std::vector<std::vector<size_t>> Split(Call& call) const;
  absl::Status ScoreBatch(Call& call, std::vector<size_t> open);
  absl::Status Ask(Call& call, const std::vector<size_t>& batch);
  absl::StatusOr<Replica*> Next(const Call& call);
  Replica* FirstAdmitted(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status TryBatch(Replica& replica, Call& call, const std::vector<size_t>& batch);
  absl::Status Exchange(Replica& replica, const v1::ScoreRequest& request, Call& call,
                        std::set<size_t>& open);
  void NoteOutcome(Replica& replica, const absl::Status& status);

  // The context of one gRPC call that Cancel ends.
  class Cancellable {
   public:
    Cancellable(Impl& impl, absl::Duration timeout)
        : impl_(impl), context_(rpc::ContextWithDeadline(timeout)) {
      absl::MutexLock lock(&impl_.mutex);
      impl_.running.insert(context_.get());
      if (impl_.cancelled) context_->TryCancel();
    }
    ~Cancellable() {
      absl::MutexLock lock(&impl_.mutex);
      impl_.running.erase(context_.get());
    }
    grpc::ClientContext* get() const { return context_.get(); }

   private:
    Impl& impl_;
    const std::unique_ptr<grpc::ClientContext> context_;
  };

  // Marks, while it lives, that a call waits.
  class Waiting {
   public:
    explicit Waiting(Impl& impl) : impl_(impl) {}
    ~Waiting() { End(); }
    void Begin(const absl::Status& why);
    void End();

   private:
    Impl& impl_;
    bool waits_ = false;
  };

  Options options;  // Describe fills in `rewards`.
  size_t batch_max = 1;
  std::vector<std::unique_ptr<Replica>> replicas;

  mutable absl::Mutex mutex;
  absl::CondVar changed;  // A breaker heard an outcome, or calls are to end.
  std::minstd_rand random ABSL_GUARDED_BY(mutex);  // For jitter.
  size_t turn ABSL_GUARDED_BY(mutex) = 0;
  bool impatient ABSL_GUARDED_BY(mutex) = false;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
  std::set<grpc::ClientContext*> running ABSL_GUARDED_BY(mutex);
  int waiting_calls ABSL_GUARDED_BY(mutex) = 0;
  std::string waiting_for ABSL_GUARDED_BY(mutex);
};

absl::StatusOr<std::unique_ptr<RewardClient>> RewardClient::Connect(Options options) {
  if (options.endpoints.empty()) {
    return absl::InvalidArgumentError("no reward server endpoint is given");
  }
  OXBOW_CHECK(options.tries >= 1) << options.tries << " tries";
  options.breaker.rest_max = std::min(options.breaker.rest_max, options.timeout);
  auto impl = std::make_unique<Impl>(std::move(options));
  for (const std::string& endpoint : impl->options.endpoints) {
    impl->replicas.push_back(
        std::make_unique<Replica>(endpoint, rpc::Connect(endpoint), impl->options.breaker));
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

absl::Status RewardClient::Impl::Describe() {
  absl::Status failure;
  bool answered = false;
  batch_max = 0;
  for (const auto& replica : replicas) {
    v1::DescribeResponse response;
    const absl::Status status = rpc::Retry({}, [&] {
      const Cancellable context(*this, std::min(options.timeout, kDescribeTimeoutMax));
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
  if (absl::IsCancelled(failure)) return failure;
  if (!IsAbsence(failure)) {
    return absl::FailedPreconditionError(
        absl::StrCat("what listens at ", options.endpoints.front(),
                     " is no reward server of this version: ", std::string(failure.message())));
  }
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

// Cuts batches of at most batch_max images and kBatchBytesMax bytes. An image that is too large for
// any batch gets its error here.
std::vector<std::vector<size_t>> RewardClient::Impl::Split(Call& call) const {
  std::vector<std::vector<size_t>> batches;
  uint64_t bytes = 0;
  for (size_t i = 0; i < call.images.size(); ++i) {
    const uint64_t size = call.images[i].pixels.size();
    if (size > kBatchBytesMax) {
      call.results[i] = absl::InvalidArgumentError(
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
                                                        const Patience& patience) {
  Impl::Call call{.prompt = {},
                  .images = images,
                  .waits = patience.waits,
                  .end = impl_->options.clock->Now() + patience.limit,
                  .results = std::vector<std::optional<Result>>(images.size())};
  call.prompt.set_text(prompt_text);
  call.prompt.set_metadata_json(prompt_metadata_json);
  absl::Status absence;
  for (std::vector<size_t>& batch : impl_->Split(call)) {
    absence = impl_->ScoreBatch(call, std::move(batch));
    if (!absence.ok()) break;
  }
  std::vector<Result> scores;
  for (std::optional<Result>& result : call.results) {
    scores.push_back(result.has_value() ? *std::move(result) : Result(absence));
  }
  return scores;
}

// Asks until every image of the batch has a score or was answered kAnswersMax times without one.
// The last time it asks for each image alone: one that breaks its call then takes no other along.
// Otherwise returns why no server answers.
absl::Status RewardClient::Impl::ScoreBatch(Call& call, std::vector<size_t> open) {
  for (int answers = 0; answers < kAnswersMax && !open.empty(); ++answers) {
    for (const size_t i : open) call.results[i].reset();
    if (answers + 1 < kAnswersMax) {
      OXBOW_RETURN_IF_ERROR(Ask(call, open));
    } else {
      for (const size_t i : open) OXBOW_RETURN_IF_ERROR(Ask(call, {i}));
    }
    std::erase_if(open, [&](size_t i) { return call.results[i]->ok(); });
  }
  return absl::OkStatus();
}

// Gets one answer for every image of the batch, whatever it says, or returns why no server answers.
absl::Status RewardClient::Impl::Ask(Call& call, const std::vector<size_t>& batch) {
  Waiting waiting(*this);
  absl::Status last;
  for (int silences = 0;;) {
    if (silences >= options.tries) {
      if (!call.waits) return last;
      waiting.Begin(last);
    }
    const absl::StatusOr<Replica*> next = Next(call);
    if (!next.ok()) {
      if (last.ok() || absl::IsCancelled(next.status())) return next.status();
      return Annotate(last, std::string(next.status().message()));
    }
    Replica& replica = **next;
    const absl::Status status =
        Annotate(TryBatch(replica, call, batch), absl::StrCat("reward server ", replica.endpoint));
    NoteOutcome(replica, status);
    if (IsAbsence(status)) {
      last = absl::UnavailableError(status.message());
      if (!absl::IsResourceExhausted(status)) ++silences;  // A busy server is there.
      continue;
    }
    for (const size_t i : batch) {
      if (!call.results[i].has_value()) call.results[i] = status;
    }
    return absl::OkStatus();
  }
}

void RewardClient::Impl::NoteOutcome(Replica& replica, const absl::Status& status) {
  absl::MutexLock lock(&mutex);
  if (!IsAbsence(status)) {
    replica.breaker.Answered();
  } else if (!cancelled) {
    OXBOW_LOG(Warning) << "scoring failed" << Field("endpoint", replica.endpoint)
                       << Field("status", status);
    replica.breaker.Failed(options.clock->Now(), std::uniform_real_distribution<>(0, 1)(random));
  }
  changed.SignalAll();
}

// The first replica that may be asked, beginning with the next in turn.
Replica* RewardClient::Impl::FirstAdmitted(absl::Duration now) {
  for (size_t i = 0; i < replicas.size(); ++i) {
    Replica& replica = *replicas[(turn + i) % replicas.size()];
    if (!replica.breaker.Admits(now, options.timeout)) continue;
    ++turn;
    return &replica;
  }
  return nullptr;
}

// Waits until some replica may be asked. kCancelled, or kUnavailable if the call is to wait no
// more.
absl::StatusOr<Replica*> RewardClient::Impl::Next(const Call& call) {
  absl::MutexLock lock(&mutex);
  while (true) {
    if (cancelled) return absl::CancelledError("scoring was cancelled");
    const absl::Duration now = options.clock->Now();
    if (now >= call.end) return absl::UnavailableError("the time for scoring is over");
    if (Replica* replica = FirstAdmitted(now); replica != nullptr) return replica;
    if (call.waits && impatient) return absl::UnavailableError("no longer waits");
    absl::Duration wait = std::min(call.end - now, kWaitSlice);
    for (const auto& replica : replicas) wait = std::min(wait, replica->breaker.next() - now);
    changed.WaitWithTimeout(&mutex, std::max(wait, absl::Milliseconds(1)));
  }
}

void RewardClient::Impl::Waiting::Begin(const absl::Status& why) {
  absl::MutexLock lock(&impl_.mutex);
  impl_.waiting_for = std::string(why.message());
  if (std::exchange(waits_, true)) return;
  if (++impl_.waiting_calls > 1) return;
  OXBOW_LOG(Warning) << "no reward server answers: waiting for one" << Field("reason", why);
}

void RewardClient::Impl::Waiting::End() {
  absl::MutexLock lock(&impl_.mutex);
  if (!std::exchange(waits_, false)) return;
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

// Sends the images that have no result yet to one replica, under one deadline, and stores its
// answers.
absl::Status RewardClient::Impl::TryBatch(Replica& replica, Call& call,
                                          const std::vector<size_t>& batch) {
  v1::ScoreRequest request;
  *request.mutable_prompt() = call.prompt;
  for (const std::string& name : options.rewards) request.add_rewards(name);
  std::set<size_t> open;
  for (const size_t i : batch) {
    if (call.results[i].has_value()) continue;
    open.insert(i);
    const Image8& image = call.images[i];
    v1::ScoreItem& item = *request.add_items();
    item.set_item(i);
    item.mutable_image()->set_width(image.width);
    item.mutable_image()->set_height(image.height);
    item.mutable_image()->set_channels(image.channels);
    item.mutable_image()->set_frames(1);
    item.mutable_image()->set_pixels(image.pixels.data(), image.pixels.size());
  }
  const absl::Status status = Exchange(replica, request, call, open);
  if (open.empty()) return absl::OkStatus();  // However the call ended.
  if (!status.ok()) return status;
  return absl::InternalError(absl::StrCat("no answer for images of the batch: ", open.size()));
}

absl::Status RewardClient::Impl::Exchange(Replica& replica, const v1::ScoreRequest& request,
                                          Call& call, std::set<size_t>& open) {
  const Cancellable context(*this, std::min(options.timeout, call.end - options.clock->Now()));
  const auto stream = replica.stub->Score(context.get());
  stream->Write(request);  // Finish reports a failed write.
  stream->WritesDone();
  v1::ScoreResponse response;
  while (stream->Read(&response)) {
    if (open.erase(response.item()) == 0) continue;  // Not requested, or answered already.
    call.results[response.item()] = ScoresOf(response, options.rewards, replica.endpoint);
  }
  return rpc::FromGrpc(stream->Finish());
}

}  // namespace oxbow::reward
