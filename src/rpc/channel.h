// SPDX-License-Identifier: Apache-2.0
// The client side of every call: one way to make a channel, one way to give a call its deadline.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace oxbow::rpc {

inline constexpr int kMessageBytesMax = 16 << 20;  // Both directions, every service.
inline constexpr int kChunkBytes = 1 << 20;        // Pieces of streamed tensors.

// A channel with TLS as in rpc/tls.h, keep-alive and message limits. Connects lazily.
std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint);

// Every call has a deadline: this is the only function that makes contexts.
std::unique_ptr<grpc::ClientContext> ContextWithDeadline(absl::Duration timeout);

}  // namespace oxbow::rpc
