// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/build_version.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/model/cuda_graphs.h"
#include "core/model/device.h"
#include "rpc/channel.h"
#include "rpc/port_language.h"
#include "rpc/protocol_revision.h"
#include "rpc/retry.h"
#include "rpc/status.h"
#include "run/rewards.h"

namespace oxbow::rollout {
namespace {

// Errors that a retry cannot fix.
bool IsFinalStatus(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kUnimplemented ||
         status.code() == absl::StatusCode::kPermissionDenied || IsOutOfMemory(status) ||
         IsDeviceError(status);
}

// Recorded passes that the run asks for need a device that records.
absl::Status CheckRecording(const RunSpec& spec) {
  const bool asked = spec.graphs && !spec.graphs_optional && !spec.weights_on_host;
  return asked ? model::CheckGraphs(spec.device) : absl::OkStatus();
}

}  // namespace

Worker::Worker(Options options, RolloutMetrics& metrics, weights::FollowMetrics& follow_metrics,
               const Clock& clock)
    : options_(std::move(options)),
      metrics_(metrics),
      follow_metrics_(follow_metrics),
      clock_(clock),
      stub_(v1::Coordinator::NewStub(rpc::Connect(options_.learner))) {}

Worker::~Worker() = default;

absl::StatusOr<v1::RegisterResponse> Worker::Register() {
  v1::RegisterRequest request;
  request.set_worker_id(options_.worker_id);
  request.set_host(options_.host);
  request.set_version(BuildVersion());
  request.set_protocol(kProtocolRevision);
  v1::RegisterResponse response;
  const auto context = rpc::ContextWithDeadline(options_.register_timeout);
  const absl::Status asked = rpc::FromGrpc(stub_->Register(context.get(), request, &response));
  if (!asked.ok()) {
    return absl::IsUnimplemented(asked)
               ? Annotate(asked, absl::StrCat("no learner is at ", options_.learner))
               : asked;
  }
  const std::string learner = absl::StrCat("the learner at ", options_.learner);
  const std::string self = absl::StrCat("worker ", options_.worker_id);
  OXBOW_RETURN_IF_ERROR(rpc::CheckRevision(learner, response.protocol(), response.version(), self));
  const std::string other = rpc::OtherBuildText(learner, response.version(), self);
  if (!other.empty() && std::exchange(build_seen_, response.version()) != response.version()) {
    OXBOW_LOG(Warning) << other;
  }
  return response;
}

absl::Status Worker::Run() {
  absl::Duration backoff = options_.backoff_first;
  bool said = false;
  absl::Duration away_since = clock_.Now();
  while (true) {
    const absl::StatusOr<v1::RegisterResponse> registration = Register();
    absl::Status status = registration.status();
    if (status.ok()) {
      OXBOW_LOG(Info) << "registered" << Field("run", registration->run_id())
                      << Field("epoch", registration->epoch());
      status = ServeEpoch(*registration);
      if (status.ok()) return status;
      away_since = clock_.Now();
      // The listener at a reward server's address may be another program for long.
      if (!absl::IsFailedPrecondition(status)) {
        backoff = options_.backoff_first;
        said = false;
      }
    }
    if (IsFinalStatus(status)) return status;
    // A stop request is not an error.
    if (!Pause(rpc::Jittered(backoff))) return absl::OkStatus();
    if (clock_.Now() - away_since >= options_.give_up_after) {
      return absl::UnavailableError(
          absl::StrCat("no learner for ", absl::FormatDuration(options_.give_up_after),
                       " (--give-up-after; 0 waits for ever): ", options_.learner, ": ",
                       rpc::Explained(status, options_.learner).message()));
    }
    if (!said) {
      OXBOW_LOG(Info) << "looking for the learner" << Field("endpoint", options_.learner)
                      << Field("reason", rpc::Explained(status, options_.learner).ToString());
      said = true;
    }
    backoff = std::min(2 * backoff, options_.backoff_max);
  }
}

absl::Status Worker::ServeEpoch(const v1::RegisterResponse& registration) {
  OXBOW_ASSIGN_OR_RETURN(RunSpec spec, RunSpecFrom(registration));
  spec.worker_id = options_.worker_id;
  spec.device = options_.device;
  spec.weights_on_host = options_.offload_weights;
  spec.lent_base = options_.lent_base;
  // The learner's attention, too: another kernel rounds otherwise.
  model::UseDeterministicAlgorithms(spec.device, registration.config().run().deterministic());
  OXBOW_RETURN_IF_ERROR(CheckRecording(spec));
  OXBOW_ASSIGN_OR_RETURN(
      std::unique_ptr<reward::RewardClient> rewards,
      reward::RewardClient::Connect(
          {.endpoints = spec.reward_endpoints,
           .elsewhere = {spec.reward.endpoints().begin(), spec.reward.endpoints().end()},
           .rewards = run::RewardNames(spec.reward),
           .observed = {spec.reward.observed().begin(), spec.reward.observed().end()},
           .identities = spec.reward_identities,
           .not_asked = run::RewardsNotAsked(spec.reward, spec.reward_endpoints),
           .tries = static_cast<int>(std::max(1u, spec.reward.tries())),
           .timeout = absl::Seconds(spec.reward.timeout_seconds()),
           .transport = spec.reward.transport()}));
  // A series is there before the first failure, so that its rate is seen.
  for (const std::string& name : spec.reward.observed()) metrics_.ObservedFailed(name, 0);
  auto session = std::make_shared<LearnerSession>(
      std::move(spec), *stub_, std::move(rewards), metrics_, follow_metrics_, clock_,
      options_.relay, options_.join_broadcast_group, options_.local_weights);
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::OkStatus();
    session_ = session;
  }
  // After a lost connection the worker reconnects with all its leases, as long as the learner is in
  // the same epoch.
  absl::Status status;
  bool said = false;
  while (true) {
    status = session->Serve();
    if (session->run_complete() || !session->failure().ok()) break;
    // The other process may be this worker's former life, whose end nobody has noticed yet.
    const bool taken = absl::IsAlreadyExists(status);
    if (taken && !std::exchange(said, true)) {
      OXBOW_LOG(Error) << "this worker gets no work" << Field("reason", status.message());
    }
    if (!Pause(taken ? options_.backoff_max : options_.backoff_first)) break;
    absl::StatusOr<v1::RegisterResponse> again = Register();
    rpc::Backoff busy(options_.backoff_first, options_.backoff_max);
    // A busy learner is there: the session, and the groups in its memory, are kept for it.
    while (rpc::FailureOf(again.status()) == rpc::Failure::kBusy && Pause(busy.Next())) {
      again = Register();
    }
    if (!again.ok() || again->epoch() != registration.epoch()) break;
    metrics_.Reconnected();
  }
  {
    absl::MutexLock lock(&mutex_);
    session_.reset();
  }
  const bool complete = session->run_complete();
  const absl::Status failure = session->failure();
  session.reset();
  if (complete) {
    OXBOW_LOG(Info) << "the run is complete" << Field("run", registration.run_id());
    return absl::OkStatus();
  }
  if (!failure.ok()) return failure;
  return status.ok() ? absl::UnavailableError("the learner ended the epoch") : status;
}

bool Worker::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
  return !mutex_.AwaitWithTimeout(absl::Condition(&stopping), duration);
}

void Worker::Stop() {
  std::shared_ptr<LearnerSession> session;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    session = session_;
  }
  if (session != nullptr) session->Leave(options_.leave_timeout);
}

}  // namespace oxbow::rollout
