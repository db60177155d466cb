// absl::Status <-> grpc::Status, one to one.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace oxbow::rpc {

grpc::Status ToGrpc(const absl::Status& status);

// A lost connection that gRPC reports as UNKNOWN "Stream removed" becomes UNAVAILABLE, so that
// callers retry.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace oxbow::rpc
