// SPDX-License-Identifier: Apache-2.0
// The caller, for handlers. Roles are checked before (rpc/call_checks.h); what depends on the
// request is checked by its handler, with these.
#pragma once

#include <grpcpp/support/status.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace grpc {
class ServerContextBase;
}  // namespace grpc

namespace oxbow::rpc {

// OK if the caller's certificate allows the name `worker_id`, or without roles. PERMISSION_DENIED
// else.
grpc::Status MayBeWorker(const grpc::ServerContextBase* context, const std::string& worker_id);

// Logs that somebody asked for something that changes or ends a run: who, from where, with which
// arguments.
void Audit(const grpc::ServerContextBase* context, std::string_view call,
           std::vector<Field> arguments);

}  // namespace oxbow::rpc
