// SPDX-License-Identifier: Apache-2.0
#include "rpc/caller.h"

#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <utility>

#include "rpc/call_checks.h"
#include "rpc/status.h"
#include "rpc/tls.h"

namespace oxbow::rpc {

grpc::Status MayBeWorker(const grpc::ServerContextBase* context, const std::string& worker_id) {
  const std::shared_ptr<Access> access = AccessInUse();
  if (access == nullptr || context == nullptr) return grpc::Status::OK;
  return ToGrpc(access->MayBeWorker(PemOf(*context->auth_context()), worker_id));
}

void Audit(const grpc::ServerContextBase* context, std::string_view call,
           std::vector<Field> arguments) {
  const std::string pem = context == nullptr ? "" : PemOf(*context->auth_context());
  const absl::StatusOr<Holder> caller = HolderOf(pem);
  LogEvent event(LogLevel::kInfo, __FILE__, __LINE__);
  event << "audit" << Field("call", call)
        << Field("caller", caller.ok() ? caller->Name() : "unauthenticated")
        << Field("address", context == nullptr ? "" : context->peer());
  for (Field& argument : arguments) event << std::move(argument);
}

}  // namespace oxbow::rpc
