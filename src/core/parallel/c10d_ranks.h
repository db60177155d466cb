// Ranks over c10d: Gloo where the device is "cpu", NCCL where it is "cuda:N".
//
// Rank 0 hosts the store where all meet, at address:port unless a launcher has a store of its own
// there; on a loopback address it listens on loopback alone. An operation that outlasts its
// deadline ends with an error on this rank whatever the peers, the store or the library do; c10d's
// own defaults of up to 30 minutes play no part. The error may come up to two seconds after the
// deadline: that long it looks for the ranks that are behind; behind_ranks.h reads them from the
// status. After an error the connections stay open until the process ends, which it should do then
// (but see process_goes_on).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/parallel/join_options.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {

// Waits until all ranks have come and have completed one collective.
//   kDeadlineExceeded  names the ranks that did not come.
//   kAlreadyExists     another process has come with this rank.
//   kInvalidArgument   ranks disagree on the size, or the device is not one.
//   kUnavailable       the address cannot be listened on or reached, or there is no such device.
//   kCancelled         `cancelled` has become true.
//   kUnimplemented     a GPU was asked for and this build has no CUDA.
absl::StatusOr<std::unique_ptr<Ranks>> JoinRanks(const JoinOptions& options);

}  // namespace oxbow::parallel
