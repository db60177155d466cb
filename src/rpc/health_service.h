// grpc.health.v1.Health/Check, answered on the path of real calls.
//
// gRPC's own health service answers from threads of its own, also when no call gets through. This
// one needs a thread of the server, and a free thread of every StreamRunner whose streams the
// server serves: SERVING means that a call would be served.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <vector>

#include "rpc/stream_runner.h"

namespace oxbow::rpc {

// The method that answers, as a client names it.
inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

class HealthService final : public grpc::Service {
 public:
  // `runners` outlive this.
  explicit HealthService(std::vector<StreamRunner*> runners);

  void Stop() { serving_ = false; }

 private:
  // NOT_FOUND for a single service: only the whole server is known.
  grpc::Status Check(const grpc::ByteBuffer& request, grpc::ByteBuffer& response);

  const std::vector<StreamRunner*> runners_;
  std::atomic<bool> serving_ = true;
};

}  // namespace oxbow::rpc
