// SPDX-License-Identifier: Apache-2.0
#include "rpc/refusals.h"

#include <grpcpp/support/status.h>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "telemetry/refused_calls.h"

namespace oxbow::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr absl::Duration kLogEvery = absl::Seconds(10);

// When the last refusal was logged, and how many came since then.
class RefusalLog {
 public:
  void Add(const char* method, const std::string& reason) {
    absl::MutexLock lock(&mutex_);
    ++unlogged_;
    const absl::Duration now = Clock::Steady().Now();
    if (now < logged_ + kLogEvery) return;
    OXBOW_LOG(Warning) << "calls refused" << Field("calls", unlogged_) << Field("last", method)
                       << Field("reason", reason);
    logged_ = now;
    unlogged_ = 0;
  }

 private:
  absl::Mutex mutex_;
  absl::Duration logged_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  uint64_t unlogged_ ABSL_GUARDED_BY(mutex_) = 0;
};

class Interceptor final : public grpc::experimental::Interceptor {
 public:
  Interceptor(const char* method, RefusalLog& log) : method_(method), log_(log) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
        telemetry::RefusedCalls::This().Add(method_ + 1, "busy");  // Without the slash.
        log_.Add(method_, status.error_message());
      }
    }
    methods->Proceed();
  }

 private:
  const char* const method_;
  RefusalLog& log_;
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new Interceptor(info->method(), log_);  // gRPC's.
  }

 private:
  RefusalLog log_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CountRefusals() {
  return std::make_unique<Factory>();
}

}  // namespace oxbow::rpc
