// SPDX-License-Identifier: Apache-2.0
// The owner of a replay store, and the calls that may change it. Pure rules.
//
// A store belongs to one run, named by its uid (run/run_record.h), and is one shard of it. A run's
// learner counts its starts as epochs: the newest start fences those before it. A store that nobody
// owns yet takes any caller; the first one that names a run owns it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace oxbow::buffer {

// How far an epoch or a step may be beyond those seen before. What is further is a bug of the
// caller: were it believed, all calls to come would be too old.
inline constexpr uint64_t kAheadMax = uint64_t{1} << 20;

struct Caller {
  // Implicit: a caller without a run, as tools and tests are.
  Caller(Epoch epoch, std::string run = "")  // NOLINT(google-explicit-constructor)
      : epoch(epoch), run(std::move(run)) {}
  Epoch epoch;
  std::string run;  // Uid; empty: not said.
};

struct Owner {
  std::string run;      // Uid; empty: nobody's yet.
  uint32_t shards = 0;  // How many the run has; 0: not known.
  uint32_t shard = 0;   // This store's place among them.
  bool operator==(const Owner&) const = default;
};

// The wishes of a Restore besides the checkpoint's name.
struct RestoreFor {
  LearnerStep step;  // Steps that the caller has committed.
  uint32_t shards = 0;
  uint32_t shard = 0;
  std::string take_from;         // The owner that loses the store to the caller; empty: none.
  uint64_t start = 0;            // A random number of the caller's start; 0: not said.
  bool* without_copy = nullptr;  // Set where content left without a copy; null: nobody asks.
};

// How messages and `take_from` name an owner: its run's uid, or "unnamed".
std::string NameOf(const Owner& owner);

// kFailedPrecondition for a caller of another run, or of none as in older versions, kAborted for an
// epoch before `seen`, kInvalidArgument for one too far ahead of it.
absl::Status CheckCaller(const Owner& owner, Epoch seen, const Caller& caller);

// kInvalidArgument for a step too far ahead of the store's clock.
absl::Status CheckStep(LearnerStep clock, LearnerStep step);

// kFailedPrecondition for another start of the owner's run with the same epoch: its directory was
// copied. `seen` and `start` are those of the last Restore.
absl::Status CheckStart(const Owner& owner, Epoch seen, uint64_t start, const Caller& caller,
                        const RestoreFor& wanted);

struct Claim {
  Owner owner;           // From now on.
  bool changes = false;  // The content is another run's or another shard's: it must not stay.
};

// The owner after a Restore. Errors as CheckCaller, and kFailedPrecondition for another
// number of shards or another shard; none of these for an owner that `take_from` names.
absl::StatusOr<Claim> ClaimOf(const Owner& owner, Epoch seen, const Caller& caller,
                              const RestoreFor& wanted);

}  // namespace oxbow::buffer
