// SPDX-License-Identifier: Apache-2.0
// The client side of every call: one way to make a channel, one way to give a call its deadline.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/trace.h"

namespace grpc {
class ServerContextBase;
}  // namespace grpc

namespace oxbow::rpc {

inline constexpr int kMessageBytesMax = 16 << 20;  // Both directions, every service.
inline constexpr int kChunkBytes = 1 << 20;        // Pieces of streamed tensors.

// How often a channel pings a server that sends nothing, to notice that it was cut off.
enum class Pings {
  kOften,        // Each 10 s, also without a call. Services of a run allow it (rpc/server.cc).
  kDuringCalls,  // Each 60 s of a call: towards servers that somebody else wrote.
  kRarely,       // Each 310 s of a call: gRPC's servers allow one in 300 s by default.
};

// A channel with TLS as in rpc/tls.h, keep-alive and message limits. Connects lazily, and directly:
// a proxy that the environment names is for other programs, unless UseHttpProxy says otherwise.
std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint, Pings pings = Pings::kOften);

// The arguments that Connect makes channels with, but for TLS.
grpc::ChannelArguments ArgumentsOf(Pings pings);

// Whether later channels go through the proxy of grpc_proxy, https_proxy or http_proxy.
void UseHttpProxy(bool used);
bool UsesHttpProxy();

// Every call has a deadline: this is the only function that makes contexts.
std::unique_ptr<grpc::ClientContext> ContextWithDeadline(absl::Duration timeout);

// Carries the trace of a call between processes, in gRPC metadata. The sending side does nothing:
// every context of ContextWithDeadline carries the trace of its thread. A handler takes it over:
//
//   const TraceScope scope(rpc::TraceOf(context));

inline constexpr char kTraceparent[] = "traceparent";

// The caller's trace; nothing if it sent none or `context` is null.
std::optional<Trace> TraceOf(const grpc::ServerContextBase* context);

// A unary call with bytes in place of messages: for callers without the service's generated code.
struct ByteAnswer {
  grpc::Status status;
  std::string bytes;  // The response as it was sent; empty if the call failed.
};

// Calls `method` ("/package.Service/Method") with the bytes of a request, and waits at most
// `timeout`.
ByteAnswer CallBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     absl::Duration timeout, const std::string& request = "");

// Keeps gRPC's event engine.
//
// gRPC ends its event engine with the last channel or server of a process, and the next channel
// makes another. If no descriptor is free at that moment, gRPC ends the process. A process that
// makes a channel for each call holds this, so that such a call fails instead.
class GrpcHold {
 public:
  GrpcHold();
  ~GrpcHold();
  GrpcHold(const GrpcHold&) = delete;
  GrpcHold& operator=(const GrpcHold&) = delete;

 private:
  const std::shared_ptr<grpc::Channel> idle_;  // It never connects.
};

}  // namespace oxbow::rpc
