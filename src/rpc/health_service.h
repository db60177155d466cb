// SPDX-License-Identifier: Apache-2.0
// grpc.health.v1.Health/Check, answered on the path of real calls.
//
// gRPC's own health service answers from threads of its own, also when no call gets through. This
// one needs a thread of the server, and a free thread of every StreamRunner whose streams the
// server serves: SERVING means that a call would be served.
//
// A service may know more (HasHealth): that it is not ready yet, and the health of its parts, under
// names such as "oxbow.v1.Reward/pickscore".
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rpc/stream_runner.h"

namespace oxbow::rpc {

// The method that answers, as a client names it.
inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// The request for the health of a part; "" is the whole server.
std::string HealthRequest(std::string_view name);

// A service that knows more of its health than that calls get through. Thread-safe.
class HasHealth {
 public:
  virtual ~HasHealth() = default;
  // Whether this part serves; "" is the service as a whole. Nothing if it has no such part.
  virtual std::optional<bool> Serves(std::string_view name) const = 0;
};

class HealthService final : public grpc::Service {
 public:
  // `runners` and `services` outlive this.
  HealthService(std::vector<StreamRunner*> runners, std::vector<const HasHealth*> services);

  void Stop() { serving_ = false; }

 private:
  // NOT_FOUND for a part that no service has.
  grpc::Status Check(const grpc::ByteBuffer& request, grpc::ByteBuffer& response);
  std::optional<bool> Serves(std::string_view name) const;

  const std::vector<StreamRunner*> runners_;
  const std::vector<const HasHealth*> services_;
  std::atomic<bool> serving_ = true;
};

}  // namespace oxbow::rpc
