// Which rank a process is, where the ranks meet, and how patient they are.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "absl/time/time.h"

namespace oxbow::parallel {

struct JoinOptions {
  int rank = 0;
  int size = 1;
  int local_rank = 0;                 // Among the ranks of this machine: which GPU is its own.
  std::string address = "127.0.0.1";  // Of rank 0.
  int port = 0;                       // 0 on rank 0: the system picks; see on_listening.
  // At address:port is a store of the launcher's that outlives the ranks, as torchrun's agent has
  // one. Rank 0 leaves word there where this life of the gang meets.
  bool agent_has_store = false;
  int restart = 0;  // How often the gang was started again: keeps lives apart without an agent.
  std::string device = "cpu";
  std::string interface;  // For Gloo, "eth0". Empty: the one that leads to `address`.
  absl::Duration join_timeout = absl::Seconds(60);
  absl::Duration operation_timeout = absl::Seconds(60);
  // Rank 0, as soon as others can come; not after JoinRanks has returned.
  std::function<void(int port)> on_listening;
  const std::atomic<bool>* cancelled = nullptr;  // True: who waits in JoinRanks waits no longer.
  // The process outlives a failure: connections and threads go as soon as the backend lets go of
  // them, at the latest some seconds after the operation's deadline, on a thread of their own.
  bool process_goes_on = false;
};

}  // namespace oxbow::parallel
