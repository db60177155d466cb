// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/coordinator_service.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/build_version.h"
#include "base/first_part.h"
#include "base/ids.h"
#include "base/log.h"
#include "rpc/call_checks.h"
#include "rpc/picture_pieces.h"
#include "rpc/protocol_revision.h"
#include "rpc/status.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr int kLeaseIdsMax = 1024;  // In one request.
constexpr size_t kNotices = 5;
constexpr int kRegisterMethod = 0;  // Indices in service Coordinator.
constexpr int kDeliverMethod = 4;

grpc::Status WrongEpoch(uint64_t got, uint64_t want) {
  return rpc::ToGrpc(absl::AbortedError(
      absl::StrCat("the learner was restarted, register again: epoch ", got, ", not ", want)));
}

lease::Blame BlameFor(const v1::WorkRequest::Finished& finished) {
  if (finished.unscored()) return lease::Blame::kNobody;
  return finished.elsewhere() || finished.discarded() ? lease::Blame::kElsewhere
                                                      : lease::Blame::kWorker;
}

// Says where peers are reached, and leaves out those who are not.
void AddEndpoints(const CoordinatorService::RelayOf& relay_of, v1::Lease& lease) {
  const auto add = [&](auto& peers) {
    auto named = std::exchange(peers, {});
    if (relay_of == nullptr) return;
    for (v1::Lease::Peer& peer : named) {
      peer.set_endpoint(relay_of(peer.worker_id()));
      if (!peer.endpoint().empty()) *peers.Add() = std::move(peer);
    }
  };
  add(*lease.mutable_conditioning_peers());
  if (lease.has_pictures()) add(*lease.mutable_pictures()->mutable_peers());
}

// One worker's stream. One read and one write are under way at most; the object keeps itself alive
// until gRPC is done with it. gRPC never calls a reaction from inside Start* or Finish.
class WorkStream final : public grpc::ServerBidiReactor<v1::WorkRequest, v1::WorkResponse>,
                         public learner::Coordinator::Session {
 public:
  WorkStream(learner::Coordinator& coordinator, const CoordinatorService::RelayOf& relay_of,
             uint64_t epoch, grpc::CallbackServerContext* context)
      : coordinator_(coordinator), relay_of_(relay_of), epoch_(epoch), context_(context) {}

  void Begin() {
    self_ = shared_from_this();
    StartRead(&request_);
  }

  void Wake() override {
    absl::MutexLock lock(&mutex_);
    if (writing_ || ended_) return;
    std::optional<v1::WorkResponse> next = coordinator_.Take(*this);
    if (!next.has_value()) return;
    response_ = *std::move(next);
    if (response_.has_lease()) AddEndpoints(relay_of_, *response_.mutable_lease());
    writing_ = true;
    StartWrite(&response_);
  }

  // The read under way fails then, and the reader ends the stream.
  void Cut() override {
    if (context_ != nullptr) context_->TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(grpc::Status::OK);
    if (request_.epoch() != epoch_) return End(WrongEpoch(request_.epoch(), epoch_));
    if (!open_) {
      absl::Status status = CheckWorkerId(request_.worker_id());
      if (!status.ok()) return End(rpc::ToGrpc(status));
      if (const grpc::Status own = rpc::MayBeWorker(context_, request_.worker_id()); !own.ok()) {
        return End(own);
      }
      status = coordinator_.Open(*this, request_.worker_id(), request_.process());
      if (!status.ok()) return End(rpc::ToGrpc(status));
      open_ = true;
    }
    if (const int ids = request_.renew().lease_ids_size(); ids > kLeaseIdsMax) {
      return End(rpc::ToGrpc(
          absl::InvalidArgumentError(absl::StrCat("more leases than a worker may hold: ", ids))));
    }
    React();
    if (goodbye_) return End(grpc::Status::OK);
    StartRead(&request_);
  }

  void OnWriteDone(bool) override {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (ended_) return Finish(status_);
    }
    Wake();
  }

  void OnDone() override { self_.reset(); }

 private:
  void React() {
    switch (request_.message_case()) {
      case v1::WorkRequest::kCredit:
        return coordinator_.SetCredit(*this, PolicyVersion(request_.credit().policy_version()),
                                      request_.credit().groups());
      case v1::WorkRequest::kRenew: {
        const auto& ids = request_.renew().lease_ids();
        return coordinator_.Renew(*this, std::vector<LeaseId>(ids.begin(), ids.end()),
                                  FirstPart(request_.renew().waiting_for(), kReasonBytesMax));
      }
      case v1::WorkRequest::kFinished:
        if (request_.finished().discarded()) coordinator_.events().Discarded();
        return coordinator_.Finish(*this, LeaseId(request_.finished().lease_id()),
                                   FirstPart(request_.finished().failure(), kReasonBytesMax),
                                   BlameFor(request_.finished()));
      case v1::WorkRequest::kUnscored:
        return coordinator_.Unscored(*this, LeaseId(request_.unscored().lease_id()),
                                     request_.unscored().samples(),
                                     FirstPart(request_.unscored().reason(), kReasonBytesMax));
      case v1::WorkRequest::kGoodbye:
        goodbye_ = true;
        return;
      default:
        return;  // Hello, or a message of a newer worker.
    }
  }

  // By the reader alone, once: nothing is read afterwards. The status follows a write under way.
  void End(const grpc::Status& status) {
    if (open_) coordinator_.Close(*this, goodbye_);
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    status_ = status;
    if (!writing_) Finish(status_);
  }

  learner::Coordinator& coordinator_;
  const CoordinatorService::RelayOf& relay_of_;
  const uint64_t epoch_;
  grpc::CallbackServerContext* const context_;  // Null in tests; gRPC's until OnDone.
  std::shared_ptr<Session> self_;
  v1::WorkRequest request_;  // The reader's, as are the two below.
  bool open_ = false;
  bool goodbye_ = false;
  absl::Mutex mutex_;
  v1::WorkResponse response_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

CoordinatorService::CoordinatorService(learner::Coordinator& coordinator,
                                       std::function<void(v1::StatusResponse&)> fill_status,
                                       v1::RegisterResponse registration,
                                       std::function<void(const std::string&)> drain,
                                       RelayOf relay_of, rpc::StreamRunner::Options streams)
    : coordinator_(coordinator),
      fill_status_(std::move(fill_status)),
      drain_(std::move(drain)),
      relay_of_(std::move(relay_of)),
      registration_(std::move(registration)),
      ticker_([this] {
        while (!ended_.WaitForNotificationWithTimeout(kTick)) coordinator_.Tick();
      }),
      runner_(streams) {
  MarkMethodStreamed(kRegisterMethod, nullptr);
  MarkMethodCallback(kRegisterMethod,
                     rpc::StreamHandler<v1::RegisterRequest, v1::RegisterResponse>(
                         runner_, [this](RegisterStream& stream) { return Enter(stream); }));
  MarkMethodStreamed(kDeliverMethod, nullptr);
  MarkMethodCallback(kDeliverMethod,
                     rpc::StreamHandler<v1::DeliverRequest, v1::DeliverResponse>(
                         runner_, [this](DeliverStream& stream) { return Take(stream); }));
}

CoordinatorService::~CoordinatorService() {
  ended_.Notify();
  ticker_.join();
}

uint64_t CoordinatorService::epoch() {
  absl::MutexLock lock(&mutex_);
  return registration_.epoch();
}

void CoordinatorService::SetRegistration(v1::RegisterResponse registration) {
  absl::MutexLock lock(&mutex_);
  registration_ = std::move(registration);
}

rpc::Handler CoordinatorService::Enter(RegisterStream& stream) {
  v1::RegisterRequest request;
  if (!co_await stream.Read(request)) co_return absl::CancelledError("the worker is gone");
  const absl::Status status = CheckWorkerId(request.worker_id());
  if (!status.ok()) co_return status;
  const grpc::Status own = rpc::MayBeWorker(&stream.context(), request.worker_id());
  if (!own.ok()) co_return rpc::FromGrpc(own);
  if (const absl::Status speaks = Speaks(request); !speaks.ok()) co_return speaks;
  v1::RegisterResponse response;
  {
    absl::MutexLock lock(&mutex_);
    response = registration_;
  }
  if (response.sink_endpoints_size() == 0) {
    co_return absl::UnavailableError("the learner is starting");
  }
  OXBOW_LOG(Info) << "worker registered" << Field("worker", request.worker_id())
                  << Field("host", request.host()) << Field("version", request.version());
  response.set_protocol(kProtocolRevision);
  response.set_version(BuildVersion());
  coordinator_.Registered(request.worker_id(), FirstPart(request.version(), kReasonBytesMax));
  stream.Send(response);
  co_return absl::OkStatus();
}

// One worker of another revision is refused, and the run goes on.
absl::Status CoordinatorService::Speaks(const v1::RegisterRequest& request) {
  const std::string worker = absl::StrCat("worker ", request.worker_id());
  const std::string version = FirstPart(request.version(), kReasonBytesMax);
  const absl::Status status =
      rpc::CheckRevision(worker, request.protocol(), version, "the learner");
  const std::string text = status.ok() ? rpc::OtherBuildText(worker, version, "the learner")
                                       : std::string(status.message());
  absl::MutexLock lock(&mutex_);
  if (!text.empty() && notices_.size() < kNotices &&
      notices_.emplace(absl::StrCat(request.protocol(), " ", version), text).second) {
    OXBOW_LOG(Warning) << "notice" << Field("text", text);
  }
  return status;
}

grpc::ServerBidiReactor<v1::WorkRequest, v1::WorkResponse>* CoordinatorService::Work(
    grpc::CallbackServerContext* context) {
  const auto stream = std::make_shared<WorkStream>(coordinator_, relay_of_, epoch(), context);
  stream->Begin();
  return stream.get();
}

// A lease that has ended is answered at once: what else comes of it is not kept.
rpc::Handler CoordinatorService::Take(DeliverStream& stream) {
  v1::DeliverRequest request;
  std::optional<rpc::ComingPictures> coming;
  v1::DeliverResponse response;
  while (co_await stream.Read(request)) {
    if (const uint64_t now = epoch(); request.epoch() != now) {
      co_return rpc::FromGrpc(WrongEpoch(request.epoch(), now));
    }
    const std::string& worker = request.worker_id();
    const LeaseId lease(request.lease_id());
    if (!coming.has_value()) {
      const grpc::Status own = rpc::MayBeWorker(&stream.context(), worker);
      if (!own.ok()) co_return rpc::FromGrpc(own);
      const std::optional<v1::Lease::Pictures> wanted = coordinator_.PicturesOf(worker, lease);
      if (!wanted.has_value()) break;
      coming.emplace(wanted->first_place(), static_cast<size_t>(wanted->pictures_size()));
    }
    const absl::Status added = coming->Add(request.piece());
    if (!added.ok()) {
      coordinator_.SubmitPictures(worker, lease, added);
      co_return added;
    }
    if (!coming->complete()) continue;
    response.set_taken(coordinator_.SubmitPictures(worker, lease, std::move(*coming).Take()));
    break;
  }
  stream.Send(response);
  co_return absl::OkStatus();
}

grpc::Status CoordinatorService::Status(grpc::ServerContext*, const v1::StatusRequest*,
                                        v1::StatusResponse* response) {
  {
    absl::MutexLock lock(&mutex_);
    response->set_epoch(registration_.epoch());
    response->set_run_id(registration_.run_id());
    response->set_run_name(registration_.config().run().name());
    *response->mutable_buffer_endpoints() = registration_.buffer_endpoints();
    *response->mutable_reward_endpoints() = registration_.reward_endpoints();
    *response->mutable_rewards_observed() = registration_.config().reward().observed();
    for (const auto& [key, text] : notices_) response->add_notices(text);
  }
  response->set_version(BuildVersion());
  response->set_unix_time(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  coordinator_.FillStatus(*response);
  fill_status_(*response);
  return grpc::Status::OK;
}

grpc::Status CoordinatorService::Drain(grpc::ServerContext* context,
                                       const v1::DrainRequest* request, v1::DrainResponse*) {
  rpc::Audit(context, "Drain", {Field("reason", request->reason())});
  drain_(request->reason());
  return grpc::Status::OK;
}

}  // namespace oxbow::learner
