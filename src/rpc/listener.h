// SPDX-License-Identifier: Apache-2.0
// Accepts the connections of a gRPC server and hands them to it.
//
// gRPC's own listener of this version stops for good when accept fails once, for example because
// no descriptor is free (CVE-2023-4785, docs/decisions/0022). This one goes on. It also keeps
// descriptors free for the process itself, its files and its own connections: past
// ConnectionDescriptorsMax a new connection is closed at once, until others end. Half of what is
// kept is for connections of the machine itself, by which its health is asked.
//
// Under TLS a connection may be a stranger's until its handshake is over. One source address, or
// one /64 of IPv6, has a limited number of connections that are as young as that.
#pragma once

#include <grpcpp/server_builder.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/listening_sockets.h"

namespace oxbow::rpc {

// How many descriptors may be in use, of `limit`, before new connections are closed. A quarter is
// kept for the process itself, at least 32 and at most 1024.
uint64_t ConnectionDescriptorsMax(uint64_t limit);

// The process's limit of descriptors.
uint64_t DescriptorLimit();

// How many young connections one source may have under TLS: an eighth of those that there may be.
uint64_t YoungConnectionsMax(uint64_t limit);

class Listener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Listens as base/listening_sockets.h says, but accepts nothing yet.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const std::string& address);
  ~Listener();  // Ends Serve and closes the sockets.

  // Accepts in a thread of its own from now on. `young_max`: connections of one source in its
  // handshake's time; 0: any number. Call it once, after the server was started.
  void Serve(std::unique_ptr<Acceptor> acceptor, uint64_t young_max = 0);
  // Accepts no more; the port is free again.
  void Stop();

  int port() const { return sockets_.port; }
  // Connections that were closed at once because too many descriptors were in use.
  uint64_t refused() const { return refused_.load(); }

 private:
  explicit Listener(ListeningSockets sockets);
  void AcceptLoop();
  bool AcceptOne(int socket);
  bool MayEnter(int connection, const sockaddr_storage& from);
  void Refuse(const char* reason);

  ListeningSockets sockets_;
  Descriptor ended_;  // An eventfd that wakes the thread.
  // Given up for a moment when no descriptor is free, so that a connection can be closed.
  Descriptor reserve_;
  std::unique_ptr<Acceptor> acceptor_;
  struct Young {
    int descriptor = -1;  // The server's; another connection's once it is closed.
    uint64_t cookie = 0;  // The system's number of the connection.
    absl::Duration since;
  };
  // The thread's two, by source.
  uint64_t young_max_ = 0;
  std::map<std::string, std::deque<Young>> young_;
  std::atomic<uint64_t> refused_{0};
  std::optional<absl::Duration> said_;  // The thread's: when it last said that it refuses.
  std::thread thread_;
};

}  // namespace oxbow::rpc
