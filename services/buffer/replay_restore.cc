// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/replay_restore.h"

#include <rocksdb/write_batch.h>

#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;

// Copies the content aside before it leaves. A store without entries has nothing to lose.
absl::Status SetAside(LiveReplay& live, const RestoreFor& wanted) {
  if (!live.state().LosesEntries(LearnerStep(0))) return absl::OkStatus();
  const std::optional<fs::path> aside = live.directory().NextAside();
  if (!aside.has_value()) {
    OXBOW_LOG(Warning) << "replay store is not copied aside: older copies are kept instead, until "
                          "the next checkpoint"
                       << Field("copies", kAsidesMax)
                       << Field("entries", live.state().tables().at(replay::kBestTable).size());
    if (wanted.without_copy != nullptr) *wanted.without_copy = true;
    return absl::OkStatus();
  }
  OXBOW_LOG(Info) << "replay store is copied aside" << Field("to", aside->string());
  return live.CopyTo(*aside);
}

absl::Status Rewind(LiveReplay& live, const RestoreFor& wanted, const ClockRecord& clock,
                    const Owner& owner) {
  if (live.state().LosesEntries(wanted.step)) OXBOW_RETURN_IF_ERROR(SetAside(live, wanted));
  rocksdb::WriteBatch batch;
  live.state().Rewind(wanted.step, batch);
  live.state().SetClock(clock, batch);
  live.state().SetOwner(owner, batch);
  return live.Commit(batch);
}

}  // namespace

absl::Status RestoreTo(LiveReplay& live, const Caller& caller, const std::string& name,
                       const RestoreFor& wanted) {
  const Owner before = live.state().owner();
  const LearnerStep now = live.state().clock().step;
  // A store that is new takes any step: its run may be old.
  if (now.value > 0) OXBOW_RETURN_IF_ERROR(CheckStep(now, wanted.step));
  OXBOW_ASSIGN_OR_RETURN(const Claim claim,
                         ClaimOf(before, live.state().clock().epoch, caller, wanted));
  if (claim.changes) {
    OXBOW_LOG(Warning) << "replay buffer is taken from its run" << Field("owner", NameOf(before))
                       << Field("by", NameOf(claim.owner));
  }
  const bool empties = claim.changes || (name.empty() && wanted.step.value == 0);
  if (name.empty() && !empties) {
    return Rewind(live, wanted, {wanted.step, caller.epoch}, claim.owner);
  }
  const fs::path next = live.directory().NextLive();
  if (empties) {
    OXBOW_RETURN_IF_ERROR(SetAside(live, wanted));
  } else {
    OXBOW_ASSIGN_OR_RETURN(const fs::path from, live.directory().FindCheckpoint(name));
    OXBOW_RETURN_IF_ERROR(live.directory().Clone(from, next));
  }
  OXBOW_RETURN_IF_ERROR(
      live.SwitchTo(next, /*create=*/empties, [&](ReplayState& state, rocksdb::WriteBatch& batch) {
        if (!state.owner().run.empty() && state.owner().run != claim.owner.run) {
          return absl::NotFoundError(
              absl::StrCat("replay checkpoint ", name, " is of run ", NameOf(state.owner())));
        }
        const LearnerStep step = claim.changes ? wanted.step : state.clock().step;
        state.SetClock({step, caller.epoch}, batch);
        state.SetOwner(claim.owner, batch);
        return absl::OkStatus();
      }));
  if (claim.changes) OXBOW_RETURN_IF_ERROR(live.directory().SetCheckpointsAside());
  return TrimToCapacity(live);
}

}  // namespace oxbow::buffer
