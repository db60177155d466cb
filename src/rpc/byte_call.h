// SPDX-License-Identifier: Apache-2.0
// A unary call with bytes in place of messages: for callers without the service's generated code.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace oxbow::rpc {

struct ByteAnswer {
  grpc::Status status;
  std::string bytes;  // The response as it was sent; empty if the call failed.
};

// Calls `method` ("/package.Service/Method") with the bytes of a request, and waits at most
// `timeout`.
ByteAnswer CallBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     absl::Duration timeout, const std::string& request = "");

}  // namespace oxbow::rpc
