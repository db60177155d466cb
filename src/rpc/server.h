// The one way to run a gRPC server: explicit limits, health service, reflection, reported port,
// orderly shutdown.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::rpc {

class Server {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  // Port 0: the system picks one.
    int threads_max = 64;
  };

  // Binds and serves `services` (not owned; they outlive the server). Health says SERVING at once.
  // kUnavailable if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options,
                                                       const std::vector<grpc::Service*>& services);
  ~Server();

  // host:port that clients use.
  const std::string& endpoint() const { return endpoint_; }

  // Health turns NOT_SERVING and new calls are refused. Running calls get `grace`, then are
  // cancelled.
  void Shutdown(absl::Duration grace);

 private:
  Server(std::unique_ptr<grpc::Server> server, std::string endpoint);

  const std::unique_ptr<grpc::Server> server_;
  const std::string endpoint_;
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
