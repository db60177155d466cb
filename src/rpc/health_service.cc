#include "rpc/health_service.h"

#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/method_handler.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace oxbow::rpc {
namespace {

constexpr uint8_t kStatusTag = 1 << 3;  // HealthCheckResponse { ServingStatus status = 1; }
constexpr uint8_t kServing = 1;
constexpr uint8_t kNotServing = 2;
constexpr absl::Duration kThreadWait = absl::Seconds(2);  // Under the timeout of any probe.

}  // namespace

HealthService::HealthService(std::vector<StreamRunner*> runners) : runners_(std::move(runners)) {
  using Method =
      grpc::internal::RpcMethodHandler<HealthService, grpc::ByteBuffer, grpc::ByteBuffer>;
  AddMethod(new grpc::internal::RpcServiceMethod(
      kHealthCheck, grpc::internal::RpcMethod::NORMAL_RPC,
      new Method([](HealthService* service, grpc::ServerContext*, const grpc::ByteBuffer* request,
                    grpc::ByteBuffer* response) { return service->Check(*request, *response); },
                 this)));
}

grpc::Status HealthService::Check(const grpc::ByteBuffer& request, grpc::ByteBuffer& response) {
  // HealthCheckRequest { string service = 1; }: empty for the whole server.
  if (request.Length() > 0) {
    return {grpc::StatusCode::NOT_FOUND, "health is known of the whole server only"};
  }
  const bool serving = serving_ && std::all_of(runners_.begin(), runners_.end(), [](auto* runner) {
                         return runner->Responds(kThreadWait);
                       });
  const uint8_t bytes[] = {kStatusTag, serving ? kServing : kNotServing};
  const grpc::Slice slice(bytes, sizeof bytes);
  response = grpc::ByteBuffer(&slice, 1);
  return grpc::Status::OK;
}

}  // namespace oxbow::rpc
