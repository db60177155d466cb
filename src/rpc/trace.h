// The trace of a call on its way between processes, in gRPC metadata. The sending side needs
// nothing: every context of rpc/channel.h carries its thread's trace. A handler takes it up:
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

// Of the caller; nothing if it sent none or `context` is null.
std::optional<Trace> TraceOf(const grpc::ServerContextBase* context);

}  // namespace oxbow::rpc
