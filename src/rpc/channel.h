// SPDX-License-Identifier: Apache-2.0
// The client side of every call: one way to make a channel, one way to give a call its deadline.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

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

}  // namespace oxbow::rpc
