// SPDX-License-Identifier: Apache-2.0
// absl::Status <-> grpc::Status, one to one.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace oxbow::rpc {

grpc::Status ToGrpc(const absl::Status& status);

// A lost connection that gRPC reports as UNKNOWN "Stream removed" becomes UNAVAILABLE, so that
// callers retry. A message over gRPC's limit, RESOURCE_EXHAUSTED there, becomes INVALID_ARGUMENT,
// so that they do not: it will never fit.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace oxbow::rpc
