// SPDX-License-Identifier: Apache-2.0
#include "bench/fleet/lease_stream.h"

#include <utility>

#include "base/clock.h"

namespace oxbow::bench {

LeaseStream::LeaseStream(v1::Coordinator::Stub& stub, uint64_t epoch, std::string worker)
    : epoch_(epoch), worker_(std::move(worker)) {
  stub.async()->Work(&context_, this);
  StartRead(&response_);
  StartCall();
  v1::WorkRequest hello = Request();
  hello.mutable_hello();
  Write(std::move(hello));
}

LeaseStream::~LeaseStream() {
  context_.TryCancel();
  AwaitEnd(absl::InfiniteDuration());
}

void LeaseStream::Ask() {
  v1::WorkRequest request = Request();
  request.mutable_credit()->set_groups(1);
  {
    absl::MutexLock lock(&mutex_);
    asked_ = Clock::Steady().Now();
  }
  Write(std::move(request));
}

std::optional<v1::Lease> LeaseStream::Next() {
  absl::MutexLock lock(&mutex_);
  const auto come = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return lease_ || done_; };
  mutex_.Await(absl::Condition(&come));
  return done_ ? std::nullopt : std::exchange(lease_, std::nullopt);
}

double LeaseStream::waited_ms() {
  absl::MutexLock lock(&mutex_);
  return waited_ms_;
}

void LeaseStream::Renew() {
  v1::WorkRequest request = Request();
  {
    absl::MutexLock lock(&mutex_);
    if (held_ == 0) return;
    request.mutable_renew()->add_lease_ids(held_);
  }
  Write(std::move(request));
}

void LeaseStream::Finished(uint64_t lease, const std::string& failure) {
  v1::WorkRequest request = Request();
  request.mutable_finished()->set_lease_id(lease);
  request.mutable_finished()->set_failure(failure);
  {
    absl::MutexLock lock(&mutex_);
    held_ = 0;
  }
  Write(std::move(request));
}

bool LeaseStream::AwaitEnd(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&done_), timeout);
}

bool LeaseStream::complete() {
  absl::MutexLock lock(&mutex_);
  return complete_;
}

void LeaseStream::OnReadDone(bool ok) {
  if (!ok) return;
  {
    absl::MutexLock lock(&mutex_);
    if (response_.has_lease()) {
      waited_ms_ = absl::ToDoubleMilliseconds(Clock::Steady().Now() - asked_);
      held_ = response_.lease().lease_id();
      lease_ = std::move(*response_.mutable_lease());
    }
    if (response_.has_drain() && response_.drain().run_complete()) {
      complete_ = true;
      context_.TryCancel();
    }
  }
  StartRead(&response_);
}

void LeaseStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writes_.pop_front();
  if (ok && !writes_.empty()) StartWrite(&writes_.front());
}

void LeaseStream::OnDone(const grpc::Status&) {
  absl::MutexLock lock(&mutex_);
  done_ = true;
}

v1::WorkRequest LeaseStream::Request() const {
  v1::WorkRequest request;
  request.set_epoch(epoch_);
  request.set_worker_id(worker_);
  return request;
}

void LeaseStream::Write(v1::WorkRequest request) {
  absl::MutexLock lock(&mutex_);
  if (done_) return;
  writes_.push_back(std::move(request));
  if (writes_.size() == 1) StartWrite(&writes_.front());
}

}  // namespace oxbow::bench
