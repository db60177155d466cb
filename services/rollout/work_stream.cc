// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/work_stream.h"

#include <algorithm>
#include <utility>

#include "base/first_part.h"
#include "base/process.h"
#include "rpc/channel.h"
#include "rpc/status.h"

namespace oxbow::rollout {
namespace {

// A gRPC stream needs a deadline; this one is longer than any run. Keep-alive and expiry detect
// dead peers.
constexpr absl::Duration kLineDeadline = absl::Hours(24 * 365);
// If this many renewals are unanswered, no more are sent on this stream.
constexpr size_t kRenewalsMax = 64;

uint64_t NumberOfThisProcess() {
  static const uint64_t number = RandomBits();
  return number;
}

}  // namespace

WorkStream::WorkStream(v1::Coordinator::Stub& stub, Epoch epoch, std::string worker_id)
    : stub_(stub), epoch_(epoch), worker_id_(std::move(worker_id)) {}

v1::WorkRequest WorkStream::Request() const {
  v1::WorkRequest request;
  request.set_epoch(epoch_.value);
  request.set_worker_id(worker_id_);
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

}  // namespace oxbow::rollout
