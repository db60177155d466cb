// SPDX-License-Identifier: Apache-2.0
#include "rpc/server.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/server_interceptor.h>
#include <grpcpp/support/status.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/memory_limits.h"
#include "base/status_macros.h"
#include "rpc/call_checks.h"
#include "rpc/channel.h"
#include "rpc/stop_signal.h"
#include "rpc/tls.h"
#include "telemetry/metrics.h"

namespace oxbow::rpc {

void EndDeafProcess(const std::string& line) {
  std::cerr << line << std::endl;
  ::_exit(kExitUnavailable);  // Destructors would wait for the server that does not work.
}

SelfProbe::SelfProbe(std::string endpoint, Options options, std::function<uint64_t()> refused)
    : endpoint_(std::move(endpoint)),
      options_(std::move(options)),
      refused_(std::move(refused)),
      thread_([this] { Loop(); }) {}

SelfProbe::~SelfProbe() {
  ended_.Notify();
  thread_.join();
}

void SelfProbe::Loop() {
  int failures = 0;
  while (!ended_.WaitForNotificationWithTimeout(options_.every)) {
    const uint64_t refused = refused_();
    if (Answers() || refused_() != refused) {
      failures = 0;
    } else if (++failures == options_.failures_max && !ended_.HasBeenNotified()) {
      options_.deaf(absl::StrCat("the own port ", endpoint_, " answered no new connection ",
                                 failures, " times in a row, within ",
                                 absl::FormatDuration(options_.timeout),
                                 " each: this process ends, so that it is started again"));
    }
  }
}

bool SelfProbe::Answers() const {
  grpc::ChannelArguments arguments;
  // Without this, channels to one endpoint share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto credentials = OwnCredentials(arguments);
  const auto channel = grpc::CreateCustomChannel(endpoint_, credentials, arguments);
  const grpc::Status status = CallBytes(channel, kHealthCheck, options_.timeout).status;
  return status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
}

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

class RefusalCounter final : public grpc::experimental::Interceptor {
 public:
  RefusalCounter(const char* method, RefusalLog& log) : method_(method), log_(log) {}

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

// Counts and logs the calls that a server answers with RESOURCE_EXHAUSTED. They were refused by
// gRPC because its threads were taken, or a service because its queue or budget was full. Logs one
// line in ten seconds at most.
class RefusalCounters final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new RefusalCounter(info->method(), log_);  // gRPC's.
  }

 private:
  RefusalLog log_;
};

std::unique_ptr<HealthService> HealthOf(const std::vector<grpc::Service*>& services) {
  std::vector<StreamRunner*> runners;
  std::vector<const HasHealth*> parts;
  for (grpc::Service* service : services) {
    if (auto* streams = dynamic_cast<HasStreams*>(service)) runners.push_back(&streams->streams());
    if (const auto* health = dynamic_cast<HasHealth*>(service)) parts.push_back(health);
  }
  return std::make_unique<HealthService>(std::move(runners), std::move(parts));
}

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> Interceptors() {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> all;
  all.push_back(std::make_unique<RefusalCounters>());
  if (const std::shared_ptr<Access> access = AccessInUse()) all.push_back(StreamCheck(access));
  return all;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options,
                                                      const std::vector<grpc::Service*>& services) {
  OXBOW_RETURN_IF_ERROR(MayListen(options.listen));
  grpc::EnableDefaultHealthCheckService(false);  // HealthService says more.
  grpc::ServerBuilder builder;
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Bind(options.listen));
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, ServerCredentials());
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  // A caller that does not finish its handshake holds a connection no longer than this.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);  // As clients do.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.streams_per_connection_max);
  grpc::ResourceQuota quota("oxbow");
  quota.SetMaxThreads(options.threads_max);
  quota.Resize(std::min<size_t>(options.memory_max, LimitOf(kGrpcShare)));
  builder.SetResourceQuota(quota);
  builder.experimental().SetInterceptorCreators(Interceptors());
  std::unique_ptr<HealthService> health = HealthOf(services);
  builder.RegisterService(health.get());
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::InternalError(absl::StrCat("cannot start a server: ", options.listen));
  }
  const uint64_t strangers = UsesTls() ? YoungConnectionsMax(DescriptorLimit()) : 0;
  listener->Serve(std::move(acceptor), options.young_max.value_or(strangers));
  const std::string address = WithBrackets(options.listen);
  const std::string endpoint =
      absl::StrCat(address.substr(0, address.rfind(':')), ":", listener->port());
  return std::unique_ptr<Server>(new Server(std::move(listener), std::move(health),
                                            std::move(server), endpoint, options.probe));
}

Server::Server(std::unique_ptr<Listener> listener, std::unique_ptr<HealthService> health,
               std::unique_ptr<grpc::Server> server, std::string endpoint,
               const SelfProbe::Options& probe)
    : listener_(std::move(listener)),
      health_(std::move(health)),
      server_(std::move(server)),
      endpoint_(std::move(endpoint)) {
  probe_.emplace(endpoint_, probe, [this] { return listener_->refused(); });
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

void Server::Shutdown(absl::Duration grace) {
  probe_.reset();
  listener_->Stop();
  health_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  server_->Wait();
}

void BlockStopSignals() {
  // Otherwise the next file that is opened takes the place of stdout or stderr.
  int free = open("/dev/null", O_RDWR);
  while (free >= 0 && free <= STDERR_FILENO) free = dup(free);
  if (free > STDERR_FILENO) close(free);
  const sigset_t signals = StopSignals();
  OXBOW_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0) << "cannot block signals";
  signal(SIGPIPE, SIG_IGN);
}

int WaitForStopSignal() {
  const sigset_t signals = StopSignals();
  int number = 0;
  while (sigwait(&signals, &number) != 0) {
  }
  return number;
}

void AnnounceReady(const std::string& name, const std::string& grpc_endpoint,
                   const std::string& metrics_endpoint) {
  std::printf("READY name=%s grpc=%s metrics=%s\n", name.c_str(), grpc_endpoint.c_str(),
              metrics_endpoint.c_str());
  std::fflush(stdout);
}

}  // namespace oxbow::rpc
