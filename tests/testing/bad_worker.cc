// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/bad_worker.h"

#include "absl/time/time.h"
#include "rpc/channel.h"
#include "rpc/protocol_revision.h"

namespace oxbow::testing {
namespace {

constexpr char kName[] = "bad-worker";
constexpr uint64_t kProcess = 66;
constexpr uint32_t kPlaces = 8;
constexpr absl::Duration kPause = absl::Milliseconds(50);
constexpr absl::Duration kServeMax = absl::Hours(1);
constexpr absl::Duration kCallMax = absl::Seconds(5);

}  // namespace

BadWorker::BadWorker(const std::string& learner, Kind kind)
    : kind_(kind),
      stub_(v1::Coordinator::NewStub(rpc::Connect(learner))),
      thread_([this] { Loop(); }) {}

BadWorker::~BadWorker() {
  leaving_.Notify();
  {
    absl::MutexLock lock(&mutex_);
    if (serving_ != nullptr) serving_->TryCancel();
  }
  thread_.join();
}

void BadWorker::Loop() {
  while (!leaving_.HasBeenNotified()) {
    if (Register()) Serve();
    leaving_.WaitForNotificationWithTimeout(kPause);
  }
}

bool BadWorker::Register() {
  v1::RegisterRequest request;
  request.set_worker_id(kName);
  request.set_protocol(kProtocolRevision + (kind_ == Kind::kOtherRevision ? 1 : 0));
  v1::RegisterResponse response;
  const grpc::Status status =
      stub_->Register(rpc::ContextWithDeadline(kCallMax).get(), request, &response);
  if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) ++refusals_;
  epoch_ = response.epoch();
  return status.ok();
}

void BadWorker::Serve() {
  const auto context = rpc::ContextWithDeadline(kServeMax);
  {
    absl::MutexLock lock(&mutex_);
    if (leaving_.HasBeenNotified()) return;
    serving_ = context.get();
  }
  const auto stream = stub_->Work(context.get());
  if (kind_ == Kind::kReadsNothing) {
    v1::WorkRequest renew = Request();
    renew.mutable_renew()->add_lease_ids(1);
    while (Write(*stream, renew)) continue;
    ++cut_offs_;
  } else {
    std::thread asking([&] { AskForLeases(*stream); });
    FailAll(*stream);
    asking.join();
  }
  context->TryCancel();
  (void)stream->Finish();
  absl::MutexLock lock(&mutex_);
  serving_ = nullptr;
}

// Says that it has the newest weights, until the stream ends.
void BadWorker::AskForLeases(Stream& stream) {
  v1::WorkRequest credit = Request();
  do {
    v1::StatusResponse status;
    if (stub_->Status(rpc::ContextWithDeadline(kCallMax).get(), {}, &status).ok()) {
      credit.mutable_credit()->set_policy_version(status.published_version());
    }
    credit.mutable_credit()->set_groups(kPlaces);
  } while (Write(stream, credit) && !leaving_.WaitForNotificationWithTimeout(kPause));
}

void BadWorker::FailAll(Stream& stream) {
  v1::WorkResponse response;
  while (stream.Read(&response)) {
    if (!response.has_lease()) continue;
    ++leases_;
    v1::WorkRequest failed = Request();
    failed.mutable_finished()->set_lease_id(response.lease().lease_id());
    failed.mutable_finished()->set_failure("torch: CUDA error: an illegal memory access");
    Write(stream, failed);
  }
}

bool BadWorker::Write(Stream& stream, const v1::WorkRequest& request) {
  absl::MutexLock lock(&write_mutex_);
  return stream.Write(request);
}

v1::WorkRequest BadWorker::Request() const {
  v1::WorkRequest request;
  request.set_epoch(epoch_);
  request.set_worker_id(kName);
  request.set_process(kProcess);
  return request;
}

}  // namespace oxbow::testing
