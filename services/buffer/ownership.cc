// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/ownership.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::buffer {
namespace {

constexpr char kUnnamed[] = "unnamed";

bool IsAhead(uint64_t value, uint64_t of) { return value > of && value - of > kAheadMax; }

absl::Status CheckShards(const Owner& owner, const RestoreFor& wanted) {
  if (owner.shards == 0 || wanted.shards == 0) return absl::OkStatus();
  if (owner.shards == wanted.shards && owner.shard == wanted.shard) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the replay buffer is shard ", owner.shard, " of ", owner.shards, " of run ", NameOf(owner),
      ", not shard ", wanted.shard, " of ", wanted.shards,
      ": name the shards as before with --buffer, or start them empty with --take-buffer ",
      NameOf(owner)));
}

}  // namespace

std::string NameOf(const Owner& owner) { return owner.run.empty() ? kUnnamed : owner.run; }

absl::Status CheckCaller(const Owner& owner, Epoch seen, const Caller& caller) {
  const std::string name = NameOf(owner);
  if (!owner.run.empty() && caller.run.empty()) {
    // It can know no flag and no rule of this; its log shows the text as it is.
    return absl::FailedPreconditionError(absl::StrCat(
        "the replay buffer belongs to run ", name,
        ", and this caller names no run, as learners of older versions do: start run ", name,
        " with a learner of the buffer's version, or give the older one a "
        "replay_buffer of its own (--data with an empty directory)"));
  }
  if (!owner.run.empty() && owner.run != caller.run) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the replay buffer belongs to run ", name, ", not to run ", NameOf({.run = caller.run}),
        ": name another --buffer, or give it to this run with --take-buffer ", name,
        " (its entries are set aside)"));
  }
  if (caller.epoch < seen) {
    return absl::AbortedError(absl::StrCat(
        "start ", caller.epoch.value, " of run ", NameOf({.run = caller.run}),
        " is fenced by start ", seen.value, " of ", name,
        ": stop one of them; if none runs, the run directory is older than the buffer, and "
        "--take-buffer ",
        name, " gives it the buffer"));
  }
  if (IsAhead(caller.epoch.value, seen.value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch is too far ahead of ", seen.value, ": ", caller.epoch.value));
  }
  return absl::OkStatus();
}

absl::Status CheckStep(LearnerStep clock, LearnerStep step) {
  if (!IsAhead(step.value, clock.value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("step is too far ahead of ", clock.value, ": ", step.value));
}

absl::Status CheckStart(const Owner& owner, Epoch seen, uint64_t start, const Caller& caller,
                        const RestoreFor& wanted) {
  const bool same = start == 0 || wanted.start == 0 || start == wanted.start;
  if (same || caller.epoch != seen || caller.run != owner.run ||
      wanted.take_from == NameOf(owner)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "another start ", seen.value, " of run ", NameOf(owner),
      " has the replay buffer: its directory was copied. Stop one of them; --take-buffer ",
      NameOf(owner), " gives the buffer to this one"));
}

absl::StatusOr<Claim> ClaimOf(const Owner& owner, Epoch seen, const Caller& caller,
                              const RestoreFor& wanted) {
  const bool takes = wanted.take_from == NameOf(owner);
  if (!takes) {
    OXBOW_RETURN_IF_ERROR(CheckCaller(owner, seen, caller));
    OXBOW_RETURN_IF_ERROR(CheckShards(owner, wanted));
  }
  Claim claim{.owner = owner};
  if (!caller.run.empty()) claim.owner.run = caller.run;
  if (wanted.shards > 0) {
    claim.owner.shards = wanted.shards;
    claim.owner.shard = wanted.shard;
  }
  claim.changes = takes && claim.owner != owner;
  return claim;
}

}  // namespace oxbow::buffer
