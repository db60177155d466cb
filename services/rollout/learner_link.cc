// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/learner_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/first_part.h"
#include "base/log.h"
#include "base/process.h"
#include "core/lease/lease_times.h"
#include "rpc/channel.h"
#include "rpc/retry.h"
#include "rpc/status.h"

namespace oxbow::rollout {
namespace {

// A gRPC stream needs a deadline; this one is longer than any run. Keep-alive and expiry detect
// dead peers.
constexpr absl::Duration kLineDeadline = absl::Hours(24 * 365);
// If this many renewals are unanswered, no more are sent on this stream.
constexpr size_t kRenewalsMax = 64;
constexpr absl::Duration kGoodbyeWait = absl::Seconds(2);
constexpr absl::Duration kHeartbeat = absl::Milliseconds(200);  // Without a lease.

uint64_t NumberOfThisProcess() {
  static const uint64_t number = RandomBits();
  return number;
}

}  // namespace

WorkStream::WorkStream(v1::Coordinator::Stub& stub, const RunSpec& spec)
    : stub_(stub), spec_(spec) {}

v1::WorkRequest WorkStream::Request() const {
  v1::WorkRequest request;
  request.set_epoch(spec_.epoch.value);
  request.set_worker_id(spec_.worker_id);
  request.set_process(NumberOfThisProcess());
  return request;
}

void WorkStream::Open() {
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return;
    ended_ = false;
    renewals_.clear();
    context_ = rpc::ContextWithDeadline(kLineDeadline);
    stream_ = stub_.Work(context_.get());
  }
  v1::WorkRequest hello = Request();
  hello.mutable_hello();
  Write(hello);
}

bool WorkStream::Read(v1::WorkResponse& response) {
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mutex_);
    stream = stream_;
  }
  if (stream != nullptr && stream->Read(&response)) return true;
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  return false;
}

absl::Status WorkStream::Close() {
  absl::MutexLock lock(&mutex_);
  if (stream_ == nullptr) return absl::OkStatus();
  stream_->WritesDone();
  const absl::Status status = rpc::FromGrpc(stream_->Finish());
  stream_.reset();
  context_.reset();
  return status;
}

void WorkStream::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

bool WorkStream::AwaitEnd(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&ended_), timeout);
}

void WorkStream::Write(const v1::WorkRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (stream_ != nullptr) stream_->Write(request);
}

void WorkStream::Credit(PolicyVersion version, uint32_t groups) {
  v1::WorkRequest request = Request();
  request.mutable_credit()->set_policy_version(version.value);
  request.mutable_credit()->set_groups(groups);
  Write(request);
}

void WorkStream::Renew(const std::vector<uint64_t>& lease_ids, const std::string& waiting_for) {
  v1::WorkRequest request = Request();
  v1::WorkRequest::Renew& renew = *request.mutable_renew();  // Sent without leases, too.
  for (const uint64_t id : lease_ids) renew.add_lease_ids(id);
  renew.set_waiting_for(waiting_for);
  absl::MutexLock lock(&mutex_);
  if (stream_ == nullptr || renewals_.size() >= kRenewalsMax) return;
  if (stream_->Write(request)) renewals_.push_back(lease_ids);
}

std::vector<uint64_t> WorkStream::Expired(const v1::WorkResponse::Renewed& renewed) {
  absl::MutexLock lock(&mutex_);
  if (renewals_.empty()) return {};
  std::vector<uint64_t> expired = std::move(renewals_.front());
  renewals_.pop_front();
  std::erase_if(expired, [&](uint64_t id) {
    return std::find(renewed.lease_ids().begin(), renewed.lease_ids().end(), id) !=
           renewed.lease_ids().end();
  });
  return expired;
}

void WorkStream::Finished(uint64_t lease_id, const Outcome& outcome) {
  v1::WorkRequest request = Request();
  request.mutable_finished()->set_lease_id(lease_id);
  request.mutable_finished()->set_failure(FirstPart(outcome.failure, kReasonBytesMax));
  request.mutable_finished()->set_unscored(outcome.unscored);
  request.mutable_finished()->set_discarded(outcome.discarded);
  request.mutable_finished()->set_elsewhere(outcome.elsewhere);
  Write(request);
}

void WorkStream::Unscored(uint64_t lease_id, uint32_t samples, const std::string& reason) {
  v1::WorkRequest request = Request();
  request.mutable_unscored()->set_lease_id(lease_id);
  request.mutable_unscored()->set_samples(samples);
  request.mutable_unscored()->set_reason(reason);
  Write(request);
}

void WorkStream::Goodbye() {
  v1::WorkRequest request = Request();
  request.mutable_goodbye();
  Write(request);
}

SamplerProgress::SamplerProgress(const Clock& clock, absl::Duration standstill_max)
    : clock_(clock), patience_(standstill_max), last_(clock.Now()) {}

void SamplerProgress::Advanced() {
  absl::MutexLock lock(&mutex_);
  const absl::Duration now = clock_.Now();
  patience_ = std::max(patience_, 2 * (now - last_));
  last_ = now;
}

bool SamplerProgress::Stalled() const {
  absl::MutexLock lock(&mutex_);
  return clock_.Now() - last_ > patience_;
}

LearnerLink::LearnerLink(const RunSpec& spec, v1::Coordinator::Stub& coordinator,
                         reward::RewardClient& rewards, RolloutMetrics& metrics, const Clock& clock,
                         std::function<void(const v1::Lease&)> take)
    : spec_(spec),
      rewards_(rewards),
      metrics_(metrics),
      clock_(clock),
      take_(std::move(take)),
      stream_(coordinator, spec),
      leases_(spec.groups_in_flight),
      progress_(clock, lease::StandstillMax(spec.lease_time)) {}

absl::Status LearnerLink::Serve() {
  stream_.Open();
  OfferCredit();
  v1::WorkResponse message;
  while (stream_.Read(message)) OnMessage(message);
  return stream_.Close();
}

void LearnerLink::Leave(absl::Duration timeout) {
  leases_.Drain();
  rewards_.GiveUpWaiting();
  OfferCredit();
  if (!leases_.AwaitEmpty(timeout)) {
    OXBOW_LOG(Warning) << "leaving with unfinished leases"
                       << Field("leases", leases_.held().size());
  }
  stream_.Goodbye();
  // The learner ends the stream after it has read the goodbye; an earlier cancel could overtake the
  // goodbye.
  stream_.AwaitEnd(kGoodbyeWait);
  stream_.Cancel();
}

void LearnerLink::Stop() {
  stopping_.Notify();
  stream_.Cancel();
  leases_.Wake();
}

void LearnerLink::OnMessage(const v1::WorkResponse& message) {
  switch (message.message_case()) {
    case v1::WorkResponse::kLease:
      if (!leases_.Arrived(message.lease())) break;
      metrics_.GroupsInFlight(leases_.held().size());
      take_(message.lease());
      break;
    case v1::WorkResponse::kCancel:
      leases_.Cancel(message.cancel().lease_id());
      OfferCredit();
      break;
    case v1::WorkResponse::kRenewed:
      DropExpired(message.renewed());
      break;
    case v1::WorkResponse::kDrain:
      OXBOW_LOG(Info) << "the learner drains: no more leases";
      leases_.Drain();
      if (!message.drain().run_complete() || run_complete()) break;
      run_complete_.Notify();
      stream_.Goodbye();  // The learner ends the stream, and with it Serve.
      break;
    default:
      break;
  }
}

// Untaken leases are never sampled; the learner refuses groups of taken ones when they arrive.
void LearnerLink::DropExpired(const v1::WorkResponse::Renewed& renewed) {
  const std::vector<uint64_t> expired = stream_.Expired(renewed);
  if (expired.empty()) return;
  for (const uint64_t lease : expired) leases_.Cancel(lease);
  metrics_.GroupsInFlight(leases_.held().size());
  OfferCredit();
}

Trace LearnerLink::TraceOf(const v1::Lease& lease) const {
  return TraceOfGroup(spec_.run_id, GroupId(lease.group_id()), LeaseId(lease.lease_id()));
}

void LearnerLink::Finish(uint64_t lease_id, const WorkStream::Outcome& outcome) {
  stream_.Finished(lease_id, outcome);
  leases_.Done(lease_id);
  metrics_.GroupsInFlight(leases_.held().size());
  OfferCredit();
}

void LearnerLink::AwaitRewards() {
  const absl::Status status = rewards_.AwaitDescription();
  if (absl::IsCancelled(status)) return;
  if (!status.ok()) return Fail(status);
  {
    absl::MutexLock lock(&mutex_);
    has_rewards_ = true;
  }
  OfferCredit();
}

void LearnerLink::GiveUp(absl::Status why, const std::vector<v1::Lease>& leases) {
  std::string text(why.message());
  if (absl::IsResourceExhausted(why)) {
    text = absl::StrCat("out of memory: ", text);
    why = OutOfMemoryError(absl::StrCat(text,
                                        ": model.compute_dtype: bf16 needs less, or give this "
                                        "worker a device with more memory"));
  }
  leases_.Drain();
  for (const v1::Lease& lease : leases) Finish(lease.lease_id(), {.failure = text});
  stream_.Goodbye();
  stream_.AwaitEnd(kGoodbyeWait);  // An earlier end could overtake what was said.
  Fail(why);
}

bool LearnerLink::Pause(uint64_t lease_id, absl::Duration wait) const {
  return !stopping_.WaitForNotificationWithTimeout(wait) && leases_.Wanted(lease_id);
}

void LearnerLink::Applied(PolicyVersion version) {
  absl::MutexLock lock(&mutex_);
  applied_ = version;
}

void LearnerLink::Fail(const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    failure_.Update(why);
  }
  stream_.Cancel();
}

absl::Status LearnerLink::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

void LearnerLink::OfferCredit() {
  absl::MutexLock lock(&mutex_);
  if (!applied_.has_value() || !has_rewards_) return;
  stream_.Credit(*applied_, progress_.Stalled() ? 0 : leases_.free_places());
}

// Says when the sampler comes to a standstill and when it goes on; the learner is told what the
// worker can take then.
bool LearnerLink::LookAtSampler(bool stalled) {
  if (progress_.Stalled() == stalled) return stalled;
  if (!stalled) {
    OXBOW_LOG(Error) << "the sampler stands still: its leases are given up (does the GPU hang?)"
                     << Field("worker", spec_.worker_id) << Field("leases", leases_.held().size());
  } else {
    OXBOW_LOG(Info) << "the sampler goes on" << Field("worker", spec_.worker_id);
  }
  OfferCredit();
  return !stalled;
}

void LearnerLink::RenewLoop() {
  absl::Duration renewed = clock_.Now();
  bool stalled = false;
  bool waited = false;
  while (true) {
    const absl::Duration pause = lease::RenewalInterval(leases_.lease_time_min());
    if (stopping_.WaitForNotificationWithTimeout(pause == absl::ZeroDuration() ? kHeartbeat
                                                                               : pause))
      return;
    stalled = LookAtSampler(stalled);
    const std::vector<uint64_t> held = stalled ? leases_.sampled() : leases_.held();
    const std::string waiting = rewards_.waiting();
    const bool news = waited != !waiting.empty();
    // A worker without leases sends a heartbeat equally often, and says at once that it waits.
    if (held.empty() && !news && clock_.Now() - renewed < lease::RenewalInterval(spec_.lease_time))
      continue;
    stream_.Renew(held, waiting);
    waited = !waiting.empty();
    renewed = clock_.Now();
  }
}

LearnerLink::Outcome OutcomeOf(const absl::Status& status) {
  if (status.ok()) return {};
  const rpc::Failure failure = rpc::FailureOf(status);
  return {.failure = status.ToString(),
          .elsewhere = failure != rpc::Failure::kNone && failure != rpc::Failure::kAnswer};
}

}  // namespace oxbow::rollout
