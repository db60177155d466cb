// SPDX-License-Identifier: Apache-2.0
#include "rpc/health_service.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/method_handler.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace oxbow::rpc {
namespace {

constexpr uint8_t kStatusTag = 1 << 3;  // HealthCheckResponse { ServingStatus status = 1; }
constexpr uint8_t kServing = 1;
constexpr uint8_t kNotServing = 2;
constexpr uint8_t kServiceTag = 1 << 3 | 2;  // HealthCheckRequest { string service = 1; }
constexpr size_t kNameMax = 200;             // Bytes; longer ones are no part of any service.
constexpr absl::Duration kThreadWait = absl::Seconds(2);  // Under the timeout of any probe.

// The name in a request; nothing if it is none that HealthRequest makes.
std::optional<std::string> NameOf(const grpc::ByteBuffer& request) {
  grpc::Slice slice;
  if (request.Length() == 0) return "";
  if (!request.DumpToSingleSlice(&slice).ok()) return std::nullopt;
  const std::string bytes(slice.begin(), slice.end());
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  uint32_t size = 0;
  std::string name;
  if (in.ReadTag() != kServiceTag || !in.ReadVarint32(&size) || size > kNameMax ||
      !in.ReadString(&name, static_cast<int>(size)) || in.ReadTag() != 0) {
    return std::nullopt;
  }
  return name;
}

}  // namespace

std::string HealthRequest(std::string_view name) {
  if (name.empty()) return "";
  std::string bytes(1, static_cast<char>(kServiceTag));
  google::protobuf::io::StringOutputStream to(&bytes);
  google::protobuf::io::CodedOutputStream out(&to);
  out.WriteVarint32(static_cast<uint32_t>(name.size()));
  out.WriteString(std::string(name));
  out.Trim();
  return bytes;
}

HealthService::HealthService(std::vector<StreamRunner*> runners,
                             std::vector<const HasHealth*> services)
    : runners_(std::move(runners)), services_(std::move(services)) {
  using Method =
      grpc::internal::RpcMethodHandler<HealthService, grpc::ByteBuffer, grpc::ByteBuffer>;
  AddMethod(new grpc::internal::RpcServiceMethod(
      kHealthCheck, grpc::internal::RpcMethod::NORMAL_RPC,
      new Method([](HealthService* service, grpc::ServerContext*, const grpc::ByteBuffer* request,
                    grpc::ByteBuffer* response) { return service->Check(*request, *response); },
                 this)));
}

grpc::Status HealthService::Check(const grpc::ByteBuffer& request, grpc::ByteBuffer& response) {
  const std::optional<std::string> name = NameOf(request);
  const std::optional<bool> serves = name ? Serves(*name) : std::nullopt;
  if (!serves) {
    return {grpc::StatusCode::NOT_FOUND,
            absl::StrCat("no such service here: ", name ? name->substr(0, 80) : "?")};
  }
  const bool serving = serving_ && *serves &&
                       std::all_of(runners_.begin(), runners_.end(),
                                   [](auto* runner) { return runner->Responds(kThreadWait); });
  const uint8_t bytes[] = {kStatusTag, serving ? kServing : kNotServing};
  const grpc::Slice slice(bytes, sizeof bytes);
  response = grpc::ByteBuffer(&slice, 1);
  return grpc::Status::OK;
}

std::optional<bool> HealthService::Serves(std::string_view name) const {
  std::optional<bool> serves;
  if (name.empty()) serves = true;
  for (const HasHealth* service : services_) {
    const std::optional<bool> one = service->Serves(name);
    if (one) serves = serves.value_or(true) && *one;
  }
  return serves;
}

}  // namespace oxbow::rpc
