// SPDX-License-Identifier: Apache-2.0
#include "rpc/trace.h"

#include <grpcpp/server_context.h>

#include <string_view>

namespace oxbow::rpc {

std::optional<Trace> TraceOf(const grpc::ServerContextBase* context) {
  if (context == nullptr) return std::nullopt;
  const auto& metadata = context->client_metadata();
  const auto found = metadata.find(kTraceparent);
  if (found == metadata.end()) return std::nullopt;
  return ParseTraceparent(std::string_view(found->second.data(), found->second.size()));
}

}  // namespace oxbow::rpc
