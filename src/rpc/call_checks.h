// SPDX-License-Identifier: Apache-2.0
// Access applied to every call of a server or channel, wherever its handler is.
//
//   server  a check before the handler is called, for every call on every connection; streams are
//           checked again at each message, so that a revoked caller does not keep an old stream
//   client  a check before the request leaves, of the server that will answer
#pragma once

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/server_interceptor.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "rpc/access.h"

namespace grpc {
class ServerContextBase;
}  // namespace grpc

namespace oxbow::rpc {

// All share `access`: connections outlive what made them.
std::shared_ptr<grpc::AuthMetadataProcessor> CallerCheck(std::shared_ptr<Access> access);
std::shared_ptr<grpc::CallCredentials> AnswererCheck(std::shared_ptr<Access> access);
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> StreamCheck(
    std::shared_ptr<Access> access);

// The certificate of the peer; empty without TLS.
std::string PemOf(const grpc::AuthContext& context);

// The caller, for handlers. Roles are checked before (above); what depends on the
// request is checked by its handler, with these.

// OK if the caller's certificate allows the name `worker_id`, or without roles. PERMISSION_DENIED
// else.
grpc::Status MayBeWorker(const grpc::ServerContextBase* context, const std::string& worker_id);

// Logs that somebody asked for something that changes or ends a run: who, from where, with which
// arguments.
void Audit(const grpc::ServerContextBase* context, std::string_view call,
           std::vector<Field> arguments);

}  // namespace oxbow::rpc
