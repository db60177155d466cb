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

std::vector<Trace> TracesOf(const grpc::ServerContextBase& context) {
  std::vector<Trace> traces;
  const auto [begin, end] = context.client_metadata().equal_range(kTraceparent);
  for (auto at = begin; at != end; ++at) {
    const auto trace = ParseTraceparent(std::string_view(at->second.data(), at->second.size()));
    if (!trace.has_value()) return {};
    traces.push_back(*trace);
  }
  return traces;
}

}  // namespace oxbow::rpc
