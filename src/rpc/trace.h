// SPDX-License-Identifier: Apache-2.0
// Carries the trace of a call between processes, in gRPC metadata. The sending side does nothing:
// every context of rpc/channel.h carries the trace of its thread. A handler takes it over:
//
//   const TraceScope scope(rpc::TraceOf(context));
#pragma once

#include <optional>

#include "base/trace.h"

namespace grpc {
class ServerContextBase;
}  // namespace grpc

namespace oxbow::rpc {

inline constexpr char kTraceparent[] = "traceparent";

// The caller's trace; nothing if it sent none or `context` is null.
std::optional<Trace> TraceOf(const grpc::ServerContextBase* context);

}  // namespace oxbow::rpc
