#include "rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <signal.h>

#include <chrono>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "rpc/channel.h"
#include "rpc/refusals.h"
#include "rpc/tls.h"

namespace oxbow::rpc {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

std::unique_ptr<HealthService> HealthOf(const std::vector<grpc::Service*>& services) {
  std::vector<StreamRunner*> runners;
  for (grpc::Service* service : services) {
    if (auto* streams = dynamic_cast<HasStreams*>(service)) runners.push_back(&streams->streams());
  }
  return std::make_unique<HealthService>(std::move(runners));
}

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> Interceptors() {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> all;
  all.push_back(CountRefusals());
  return all;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options,
                                                      const std::vector<grpc::Service*>& services) {
  OXBOW_RETURN_IF_ERROR(MayListen(options.listen));
  grpc::EnableDefaultHealthCheckService(false);  // HealthService says more.
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, ServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);  // As clients do.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.streams_per_connection_max);
  grpc::ResourceQuota quota("oxbow");
  quota.SetMaxThreads(options.threads_max);
  quota.Resize(options.memory_max);
  builder.SetResourceQuota(quota);
  builder.experimental().SetInterceptorCreators(Interceptors());
  std::unique_ptr<HealthService> health = HealthOf(services);
  builder.RegisterService(health.get());
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen (is the port taken?): ", options.listen));
  }
  const std::string host = options.listen.substr(0, options.listen.rfind(':'));
  return std::unique_ptr<Server>(
      new Server(std::move(health), std::move(server), absl::StrCat(host, ":", port)));
}

Server::Server(std::unique_ptr<HealthService> health, std::unique_ptr<grpc::Server> server,
               std::string endpoint)
    : health_(std::move(health)), server_(std::move(server)), endpoint_(std::move(endpoint)) {}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

void Server::Shutdown(absl::Duration grace) {
  health_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  server_->Wait();
}

void BlockStopSignals() {
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
