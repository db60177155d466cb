// SPDX-License-Identifier: Apache-2.0
// Ranks over c10d: Gloo where the device is "cpu", NCCL where it is "cuda:N".
//
// Rank 0 hosts the store where all meet, at address:port unless a launcher has a store of its own
// there; on a loopback address it listens on loopback only. An operation that outlasts its deadline
// ends with an error on this rank, whatever the peers, the store or the library do; c10d's own
// defaults of up to 30 minutes play no part. The error may come up to two seconds after the
// deadline: for that time it looks for the ranks that are behind, and BehindRanks reads them from
// the status. After an error the connections stay open until the process ends, which it should do
// then (but see process_goes_on).
//
// No torch in this header.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace oxbow::parallel {

class Ranks;

// The rank of a process, the place where the ranks meet, and the time that they wait.
struct JoinOptions {
  int rank = 0;
  int size = 1;
  int local_rank = 0;                 // Among the ranks of this machine: which GPU is its own.
  std::string address = "127.0.0.1";  // Where rank 0 is.
  int port = 0;                       // 0 on rank 0: the system chooses; see on_listening.
  // At address:port is a store of the launcher's that outlives the ranks, as torchrun's agent has
  // one. Rank 0 writes there where the ranks of this start meet.
  bool agent_has_store = false;
  // How often the group was started again: without an agent it tells one start from the next.
  int restart = 0;
  std::string device = "cpu";
  std::string interface;  // For Gloo, "eth0". Empty: the one that leads to `address`.
  absl::Duration join_timeout = absl::Seconds(60);
  absl::Duration operation_timeout = absl::Seconds(60);
  // Rank 0, as soon as others can come; not after JoinRanks has returned.
  std::function<void(int port)> on_listening;
  const std::atomic<bool>* cancelled = nullptr;  // Once true, JoinRanks waits no longer.
  // The process outlives a failure: connections and threads go as soon as the backend lets go of
  // them, at the latest some seconds after the operation's deadline, on a thread of their own.
  bool process_goes_on = false;
};

// Waits until all ranks have come and have completed one collective.
//   kDeadlineExceeded  names the ranks that did not come.
//   kAlreadyExists     another process has come with this rank.
//   kInvalidArgument   ranks disagree on the size, or the device is not one.
//   kUnavailable       the address cannot be listened on or reached, or there is no such device.
//   kCancelled         `cancelled` has become true.
//   kUnimplemented     a GPU was asked for and this build has no CUDA.
absl::StatusOr<std::unique_ptr<Ranks>> JoinRanks(const JoinOptions& options);

// The status of an error of Ranks or JoinRanks also has, as a payload, the ranks that did not come
// or were behind when a deadline passed. Its message says the same in words.
inline constexpr char kBehindRanks[] = "oxbow/behind_ranks";

inline void NameBehind(const std::vector<int>& ranks, absl::Status& status) {
  if (!ranks.empty()) status.SetPayload(kBehindRanks, absl::Cord(absl::StrJoin(ranks, ",")));
}

// Empty: the error does not know them.
inline std::vector<int> BehindRanks(const absl::Status& status) {
  std::vector<int> ranks;
  const auto payload = status.GetPayload(kBehindRanks);
  if (!payload.has_value()) return ranks;
  for (const absl::string_view text : absl::StrSplit(std::string(*payload), ',')) {
    int rank = 0;
    if (absl::SimpleAtoi(text, &rank)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace oxbow::parallel
