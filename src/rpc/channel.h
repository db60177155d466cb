// The client side of every call: one way to make a channel, one way to give a call its deadline.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace oxbow::rpc {

inline constexpr int kMessageBytesMax = 16 << 20;  // Both directions, every service.
inline constexpr int kChunkBytes = 1 << 20;        // Pieces of streamed tensors.

// A channel with TLS as in rpc/tls.h, keep-alive and message limits. Connects lazily.
std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint);

// Every call has a deadline: this is the only function that makes contexts.
std::unique_ptr<grpc::ClientContext> ContextWithDeadline(absl::Duration timeout);

struct RetryPolicy {
  int tries = 3;
  absl::Duration backoff_first = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Seconds(2);
};

// Runs `call` until it is OK, fails with a code other than UNAVAILABLE, or `tries` are used up.
// For idempotent calls only. `sleep` is a parameter so that tests need not wait.
absl::Status Retry(const RetryPolicy& policy, const std::function<absl::Status()>& call,
                   const std::function<void(absl::Duration)>& sleep = nullptr);

}  // namespace oxbow::rpc
