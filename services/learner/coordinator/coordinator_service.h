// SPDX-License-Identifier: Apache-2.0
// Coordinator over gRPC: converts, calls, converts. Decisions are the Coordinator's.
//
// Work is a reactor, Deliver and Register are coroutines, not blocking handlers: a worker costs a
// stream, and no thread. So a fleet that starts at once waits its turn, and no worker is refused.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/server.h"
#include "rpc/stream.h"
#include "services/learner/coordinator/coordinator.h"

namespace oxbow::learner {

class CoordinatorService final
    : public v1::Coordinator::WithCallbackMethod_Work<v1::Coordinator::Service>,
      public rpc::HasStreams {
 public:
  using RegisterStream = rpc::Stream<v1::RegisterRequest, v1::RegisterResponse>;
  using DeliverStream = rpc::Stream<v1::DeliverRequest, v1::DeliverResponse>;
  // Where others fetch what a worker holds (host:port); empty if they cannot.
  using RelayOf = std::function<std::string(const std::string& worker)>;

  // `fill_status` adds what the coordinator does not know to a status, once there was a
  // registration; `registration` is what every worker is told; `drain` is called on a Drain
  // request. `relay_of` says which peers of a lease a worker can reach; null: none.
  CoordinatorService(learner::Coordinator& coordinator,
                     std::function<void(v1::StatusResponse&)> fill_status,
                     v1::RegisterResponse registration,
                     std::function<void(const std::string&)> drain, RelayOf relay_of = nullptr,
                     rpc::StreamRunner::Options streams = {});
  ~CoordinatorService() override;

  // The endpoints are known only once the server is bound; requests that come before wait.
  void SetRegistration(v1::RegisterResponse registration);

  grpc::ServerBidiReactor<v1::WorkRequest, v1::WorkResponse>* Work(
      grpc::CallbackServerContext* context) override;
  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                      v1::StatusResponse* response) override;
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override;

  // Each serves one call. Public for callers without a network.
  rpc::Handler Enter(RegisterStream& stream);
  rpc::Handler Take(DeliverStream& stream);

  rpc::StreamRunner& streams() override { return runner_; }

 private:
  absl::Status Speaks(const v1::RegisterRequest& request);
  uint64_t epoch();

  learner::Coordinator& coordinator_;
  const std::function<void(v1::StatusResponse&)> fill_status_;
  const std::function<void(const std::string&)> drain_;
  const RelayOf relay_of_;
  absl::Mutex mutex_;
  v1::RegisterResponse registration_ ABSL_GUARDED_BY(mutex_);
  // Revisions and builds that workers have and this learner has not: the first few, each once.
  std::map<std::string, std::string> notices_ ABSL_GUARDED_BY(mutex_);
  absl::Notification ended_;
  std::thread ticker_;
  rpc::StreamRunner runner_;  // Last: it waits for the streams.
};

}  // namespace oxbow::learner
