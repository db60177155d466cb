// Ranks over c10d: Gloo where the device is "cpu", NCCL where it is "cuda:N".
//
// Rank 0 hosts the store at address:port where all meet; on a loopback address it listens on
// loopback alone. An operation that outlasts its deadline ends with an error on this rank whatever
// the peers, the store or the library do; c10d's own defaults of up to 30 minutes play no part. The
// error may come up to two seconds after the deadline: that long it looks for the ranks that are
// behind. After an error the connections stay open until the process ends, which it should do then.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {

struct JoinOptions {
  int rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  // Of rank 0.
  int port = 0;                       // 0 on rank 0: the system picks; see on_listening.
  bool store_is_hosted = false;       // Rank 0 finds a store there too: torchrun's agent has one.
  int restart = 0;                    // How often the gang was restarted: keeps lives apart.
  std::string device = "cpu";
  std::string interface;  // For Gloo, "eth0". Empty: the one that leads to `address`.
  absl::Duration join_timeout = absl::Seconds(60);
  absl::Duration operation_timeout = absl::Seconds(60);
  std::function<void(int port)> on_listening;  // Rank 0, as soon as others can come.
};

// Waits until all ranks have come and have completed one collective.
//   kDeadlineExceeded  names the ranks that did not come.
//   kAlreadyExists     another process has come with this rank.
//   kInvalidArgument   ranks disagree on the size, or the device is not one.
//   kUnavailable       the address cannot be listened on or reached, or there is no such device.
//   kUnimplemented     a GPU was asked for and this build has no CUDA.
absl::StatusOr<std::unique_ptr<Ranks>> JoinRanks(const JoinOptions& options);

}  // namespace oxbow::parallel
