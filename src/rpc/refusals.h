// SPDX-License-Identifier: Apache-2.0
// Counts and logs the calls that a server answers with RESOURCE_EXHAUSTED. They were refused by
// gRPC because its threads were taken, or a service because its queue or budget was full. Logs one
// line in ten seconds at most.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

namespace oxbow::rpc {

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CountRefusals();

}  // namespace oxbow::rpc
