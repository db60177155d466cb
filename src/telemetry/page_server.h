// SPDX-License-Identifier: Apache-2.0
// Serves one page of text over HTTP: GET PATH, one request a connection.
//
// One thread waits for all connections at once, so a caller that says nothing, or reads nothing,
// delays no other. Each connection ends after `time_max`; if too many are open, the oldest ends.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/listening_sockets.h"

namespace oxbow::telemetry {

class PageServer {
 public:
  struct Options {
    std::string path = "/metrics";
    std::string content_type = "text/plain; version=0.0.4; charset=utf-8";
    absl::Duration time_max = absl::Seconds(10);
    size_t connections_max = 64;
  };

  // `page` is called once a request, in the server's thread. kUnavailable if `address` cannot be
  // bound (base/listening_sockets.h).
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(const std::string& address,
                                                           const Options& options,
                                                           std::function<std::string()> page);
  ~PageServer();

  int port() const { return sockets_.port; }

 private:
  struct Connection {
    Descriptor socket;
    absl::Duration end;
    std::string request;
    std::string answer;  // The rest, still to be sent.
    bool answered = false;
  };

  PageServer(ListeningSockets sockets, const Options& options, std::function<std::string()> page);
  void Loop();
  bool Accept(int socket);
  bool Serve(Connection& connection) const;
  std::string AnswerTo(const std::string& request) const;

  const Options options_;
  const std::function<std::string()> page_;
  const ListeningSockets sockets_;
  const Descriptor ended_;             // An eventfd that wakes the thread.
  std::list<Connection> connections_;  // The thread's; oldest first.
  std::thread thread_;
};

}  // namespace oxbow::telemetry
