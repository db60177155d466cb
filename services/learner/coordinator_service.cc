#include "services/learner/coordinator_service.h"

#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "rpc/status.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kWriterPause =
    absl::Milliseconds(500);  // Between looks at a closed stream.

grpc::Status WrongEpoch(uint64_t got, uint64_t want) {
  return rpc::ToGrpc(absl::AbortedError(
      absl::StrCat("the learner was restarted, register again: epoch ", got, ", not ", want)));
}

}  // namespace

CoordinatorService::CoordinatorService(learner::Coordinator& coordinator, const RunBoard& board,
                                       v1::RegisterResponse registration,
                                       std::function<void(const std::string&)> drain)
    : coordinator_(coordinator),
      board_(board),
      drain_(std::move(drain)),
      registration_(std::move(registration)) {}

void CoordinatorService::SetRegistration(v1::RegisterResponse registration) {
  absl::MutexLock lock(&mutex_);
  registration_ = std::move(registration);
}

grpc::Status CoordinatorService::Register(grpc::ServerContext*, const v1::RegisterRequest* request,
                                          v1::RegisterResponse* response) {
  if (request->worker_id().empty()) {
    return rpc::ToGrpc(absl::InvalidArgumentError("worker_id is empty"));
  }
  absl::MutexLock lock(&mutex_);
  if (registration_.sink_endpoints_size() == 0) {
    return rpc::ToGrpc(absl::UnavailableError("the learner is starting"));
  }
  *response = registration_;
  OXBOW_LOG(Info) << "worker registered" << Field("worker", request->worker_id())
                  << Field("host", request->host()) << Field("version", request->version());
  return grpc::Status::OK;
}

grpc::Status CoordinatorService::Converse(
    grpc::ServerReaderWriter<v1::WorkResponse, v1::WorkRequest>& stream,
    learner::Coordinator::Session& session, const v1::WorkRequest& first, bool& goodbye) {
  const uint64_t epoch = first.epoch();
  v1::WorkRequest request = first;
  do {
    if (request.epoch() != epoch) return WrongEpoch(request.epoch(), epoch);
    switch (request.message_case()) {
      case v1::WorkRequest::kCredit:
        coordinator_.SetCredit(session, PolicyVersion(request.credit().policy_version()),
                               request.credit().groups());
        break;
      case v1::WorkRequest::kRenew: {
        std::vector<LeaseId> leases;
        for (const uint64_t id : request.renew().lease_ids()) leases.emplace_back(id);
        coordinator_.Renew(session, leases);
        break;
      }
      case v1::WorkRequest::kFinished:
        coordinator_.Finish(session, LeaseId(request.finished().lease_id()),
                            request.finished().failure());
        break;
      case v1::WorkRequest::kGoodbye:
        goodbye = true;
        return grpc::Status::OK;
      default:
        break;  // Hello, or a message of a newer worker.
    }
  } while (stream.Read(&request));
  return grpc::Status::OK;
}

grpc::Status CoordinatorService::Work(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::WorkResponse, v1::WorkRequest>* stream) {
  v1::WorkRequest first;
  if (!stream->Read(&first)) return grpc::Status::OK;
  uint64_t epoch;
  {
    absl::MutexLock lock(&mutex_);
    epoch = registration_.epoch();
  }
  if (first.epoch() != epoch) return WrongEpoch(first.epoch(), epoch);
  if (first.worker_id().empty())
    return rpc::ToGrpc(absl::InvalidArgumentError("worker_id is empty"));
  learner::Coordinator::Session session;
  coordinator_.Open(session, first.worker_id());
  // A stream has one reader and one writer; this thread reads.
  std::thread writer([&] {
    bool closed = false;
    while (!closed) {
      const auto response = coordinator_.Next(session, kWriterPause, closed);
      if (response.has_value() && !stream->Write(*response)) break;
    }
    if (closed) return;
    context->TryCancel();  // The write failed: end the read as well.
  });
  bool goodbye = false;
  const grpc::Status status = Converse(*stream, session, first, goodbye);
  coordinator_.Close(session, goodbye);
  writer.join();
  OXBOW_LOG(Info) << "worker left" << Field("worker", first.worker_id())
                  << Field("goodbye", goodbye ? "yes" : "no");
  return status;
}

grpc::Status CoordinatorService::Status(grpc::ServerContext*, const v1::StatusRequest*,
                                        v1::StatusResponse* response) {
  {
    absl::MutexLock lock(&mutex_);
    response->set_epoch(registration_.epoch());
    response->set_run_id(registration_.run_id());
    response->set_run_name(registration_.config().run().name());
  }
  coordinator_.FillStatus(*response);
  board_.FillStatus(*response);
  return grpc::Status::OK;
}

grpc::Status CoordinatorService::Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                                       v1::DrainResponse*) {
  OXBOW_LOG(Info) << "drain requested" << Field("reason", request->reason());
  drain_(request->reason());
  return grpc::Status::OK;
}

}  // namespace oxbow::learner
