// SPDX-License-Identifier: Apache-2.0
// Asks this process's own server for its health, each time over a new connection.
//
// Existing connections say nothing about new ones: a server whose port answers nobody any more
// looks well to all who are connected, and nobody can ever join again. Such a process ends, so that
// its supervisor starts it again. Deaf means that no answer came in time, `failures_max` times in a
// row. Any answer counts as one, also a refusal or a failed handshake: the port works then. A probe
// in whose time the server refused connections for lack of descriptors does not count: a restart
// would not help.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace oxbow::rpc {

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

}  // namespace oxbow::rpc
