// Accepts the connections of a gRPC server and hands them to it.
//
// gRPC's own listener of this version stops for good when accept fails once, for example because
// no descriptor is free (CVE-2023-4785, docs/decisions/0022). This one goes on. It also keeps
// descriptors free for the process itself, its files and its own connections: past
// ConnectionDescriptorsMax a new connection is closed at once, until others end.
#pragma once

#include <grpcpp/server_builder.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/descriptor.h"

namespace oxbow::rpc {

// How many descriptors may be in use, of `limit`, before new connections are closed. A quarter is
// kept for the process itself, at least 32 and at most 1024.
uint64_t ConnectionDescriptorsMax(uint64_t limit);

class Listener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Listens on all addresses of "HOST:PORT" or "[V6]:PORT", on one port; port 0: the system picks
  // one. A wildcard (0.0.0.0, [::]) takes IPv4 and IPv6 where the machine has both. kUnavailable if
  // no address can be bound; the message names the reason.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const std::string& address);
  ~Listener();  // Ends Serve and closes the sockets.

  // Accepts in a thread of its own from now on. Call it once, after the server was started.
  void Serve(std::unique_ptr<Acceptor> acceptor);
  // Accepts no more.
  void Stop();

  int port() const { return port_; }
  // Connections that were closed at once because too many descriptors were in use.
  uint64_t refused() const { return refused_.load(); }

 private:
  explicit Listener(std::vector<Descriptor> sockets, int port);
  void AcceptLoop();
  bool AcceptOne(int socket);
  void Refuse(const char* reason);

  const std::vector<Descriptor> sockets_;
  const int port_;
  Descriptor ended_;  // An eventfd that wakes the thread.
  // Given up for a moment when no descriptor is free, so that a connection can be closed.
  Descriptor reserve_;
  std::unique_ptr<Acceptor> acceptor_;
  std::atomic<uint64_t> refused_{0};
  std::optional<absl::Duration> said_;  // The thread's: when it last said that it refuses.
  std::thread thread_;
};

}  // namespace oxbow::rpc
