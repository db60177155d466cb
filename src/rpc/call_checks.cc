// SPDX-License-Identifier: Apache-2.0
#include "rpc/call_checks.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/server_context.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/status.h"
#include "rpc/tls.h"

namespace oxbow::rpc {
namespace {

class CallerProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit CallerProcessor(std::shared_ptr<Access> access) : access_(std::move(access)) {}
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    if (path == metadata.end()) {
      return {grpc::StatusCode::INTERNAL, "gRPC does not say which method is called"};
    }
    return ToGrpc(access_->MayCall({path->second.data(), path->second.size()}, PemOf(*context)));
  }

 private:
  const std::shared_ptr<Access> access_;
};

class AnswererPlugin final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit AnswererPlugin(std::shared_ptr<Access> access) : access_(std::move(access)) {}
  bool IsBlocking() const override { return false; }
  const char* GetType() const override { return "oxbow-roles"; }

  // gRPC gives the URL of the service and the method's name apart.
  grpc::Status GetMetadata(grpc::string_ref service_url, grpc::string_ref method,
                           const grpc::AuthContext& server,
                           std::multimap<grpc::string, grpc::string>*) override {
    const std::string_view url(service_url.data(), service_url.size());
    const std::string path = absl::StrCat(std::string(url.substr(url.rfind('/'))), "/",
                                          std::string(method.data(), method.size()));
    return ToGrpc(access_->MayAnswer(path, PemOf(server)));
  }

 private:
  const std::shared_ptr<Access> access_;
};

class StreamInterceptor final : public grpc::experimental::Interceptor {
 public:
  StreamInterceptor(std::shared_ptr<Access> access, grpc::experimental::ServerRpcInfo& call)
      : access_(std::move(access)), method_(call.method()), context_(*call.server_context()) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    const bool message = batch->QueryInterceptionHookPoint(Point::POST_RECV_MESSAGE) ||
                         batch->QueryInterceptionHookPoint(Point::PRE_SEND_MESSAGE);
    if (message && !ended_) {
      if (holder_ == nullptr) holder_ = access_->HolderOf(PemOf(*context_.auth_context()));
      if (access_->IsRevoked(*holder_)) {
        ended_ = true;
        access_->RefuseRevoked(method_, *holder_).IgnoreError();  // Counted and logged.
        context_.TryCancel();
      }
    }
    batch->Proceed();
  }

 private:
  const std::shared_ptr<Access> access_;
  const std::string method_;
  grpc::ServerContextBase& context_;
  std::shared_ptr<const Holder> holder_;
  bool ended_ = false;
};

class StreamFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit StreamFactory(std::shared_ptr<Access> access) : access_(std::move(access)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    if (info->type() == grpc::experimental::ServerRpcInfo::Type::UNARY) return nullptr;
    return new StreamInterceptor(access_, *info);  // gRPC's from here on.
  }

 private:
  const std::shared_ptr<Access> access_;
};

}  // namespace

std::string PemOf(const grpc::AuthContext& context) {
  const auto values = context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return values.empty() ? "" : std::string(values.front().data(), values.front().size());
}

std::shared_ptr<grpc::AuthMetadataProcessor> CallerCheck(std::shared_ptr<Access> access) {
  return std::make_shared<CallerProcessor>(std::move(access));
}

std::shared_ptr<grpc::CallCredentials> AnswererCheck(std::shared_ptr<Access> access) {
  return grpc::MetadataCredentialsFromPlugin(std::make_unique<AnswererPlugin>(std::move(access)));
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> StreamCheck(
    std::shared_ptr<Access> access) {
  return std::make_unique<StreamFactory>(std::move(access));
}

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
