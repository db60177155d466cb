// SPDX-License-Identifier: Apache-2.0
// The one way to run a gRPC server: explicit limits, health service, count of refusals, roles under
// TLS, reported port, orderly shutdown.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "rpc/health_service.h"
#include "rpc/listener.h"
#include "rpc/stream_runner.h"

namespace oxbow::rpc {

// Asks this process's own server for its health, each time over a new connection.
//
// Existing connections say nothing about new ones: a server whose port answers nobody any more
// looks well to all who are connected, and nobody can ever join again. Such a process ends, so that
// its supervisor starts it again. Deaf means that no answer came in time, `failures_max` times in a
// row. Any answer counts as one, also a refusal or a failed handshake: the port works then. A probe
// in whose time the server refused connections for lack of descriptors does not count: a restart
// would not help.

// Prints the line on stderr and ends the process with kExitUnavailable.
[[noreturn]] void EndDeafProcess(const std::string& line);

class SelfProbe {
 public:
  struct Options {
    absl::Duration every = absl::Seconds(20);
    absl::Duration timeout = absl::Seconds(10);
    int failures_max = 3;
    std::function<void(const std::string& line)> deaf = EndDeafProcess;
  };

  // `refused` counts the connections that the server has refused so far.
  SelfProbe(std::string endpoint, Options options, std::function<uint64_t()> refused);
  ~SelfProbe();

 private:
  void Loop();
  bool Answers() const;

  const std::string endpoint_;
  const Options options_;
  const std::function<uint64_t()> refused_;
  absl::Notification ended_;
  std::thread thread_;
};

// A service with streams that run on its own StreamRunner.
class HasStreams {
 public:
  virtual ~HasStreams() = default;
  virtual StreamRunner& streams() = 0;
};

class Server {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  // Port 0: the system picks one.
    // Unary calls at a time; one more is answered with RESOURCE_EXHAUSTED. Streams take none.
    int threads_max = 64;
    int streams_per_connection_max = 4096;  // Further ones wait at the client.
    size_t memory_max = size_t{4} << 30;    // Bytes in gRPC's own buffers; above, it reads less.
    std::optional<uint64_t>
        young_max;  // See rpc/listener.h; not set: as many as TLS wants, or any.
    SelfProbe::Options probe;
  };

  // Binds and serves `services` (at least one; not owned; they outlive the server). Health says
  // SERVING at once, as long as threads are free and no service says otherwise
  // (rpc/health_service.h). kUnavailable if the
  // address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options,
                                                       const std::vector<grpc::Service*>& services);
  ~Server();

  // host:port that clients use.
  const std::string& endpoint() const { return endpoint_; }

  // Health turns NOT_SERVING and new calls are refused. Running calls get `grace`, then are
  // cancelled.
  void Shutdown(absl::Duration grace);

 private:
  Server(std::unique_ptr<Listener> listener, std::unique_ptr<HealthService> health,
         std::unique_ptr<grpc::Server> server, std::string endpoint,
         const SelfProbe::Options& probe);

  const std::unique_ptr<Listener> listener_;
  const std::unique_ptr<HealthService> health_;
  const std::unique_ptr<grpc::Server> server_;
  const std::string endpoint_;
  std::optional<SelfProbe> probe_;  // Until Shutdown.
};

// Blocks the stop signals in this and all later threads: SIGTERM, SIGINT, and SIGHUP (the terminal
// was closed) unless it is ignored, as under nohup. Ignores SIGPIPE, and opens /dev/null in place
// of closed standard streams. Call it first in main.
void BlockStopSignals();

// Waits for a stop signal and returns its number. Requires BlockStopSignals.
int WaitForStopSignal();

// Prints "READY name=NAME grpc=HOST:PORT metrics=HOST:PORT" on stdout, from which supervisors and
// tests learn the ports.
void AnnounceReady(const std::string& name, const std::string& grpc_endpoint,
                   const std::string& metrics_endpoint);

}  // namespace oxbow::rpc
