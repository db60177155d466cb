// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/checkpoint_schedule.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace oxbow::learner {
namespace {

// In a row, and over at least `services.patience_minutes`. Steps may take long.
constexpr uint32_t kFailuresMax = 5;

absl::Duration Now() { return Clock::Steady().Now(); }

// A checkpoint that does not read back is written again as well.
bool MayBeTriedAgain(const absl::Status& status) {
  return MayPass(status) || absl::IsDataLoss(status);
}

}  // namespace

CheckpointSchedule::CheckpointSchedule(Options options, const LoopParts& parts, RunDisk& disk)
    : options_(std::move(options)),
      parts_(parts),
      disk_(disk),
      begun_(options_.committed),
      patience_(Clock::Steady(), disk.patience()),
      best_(options_.best_before),
      best_begun_(options_.best_before),
      best_whole_(options_.best_before) {}

bool CheckpointSchedule::Due(uint64_t committed) const {
  if (options_.every > 0 && committed % options_.every == 0) return true;
  return again_.has_value() && Now() >= *again_;
}

bool CheckpointSchedule::IsBest(uint64_t committed,
                                const std::map<std::string, double>& evaluation) {
  const auto found = evaluation.find(options_.best_metric);
  if (committed == 0 || found == evaluation.end()) return false;
  if (!(found->second > best_.value_or(-HUGE_VAL))) return false;
  best_ = found->second;
  return true;
}

absl::Status CheckpointSchedule::Look() {
  const std::optional<absl::Status> ended = parts_.checkpoint_ended();
  return ended.has_value() ? Judge(*ended) : absl::OkStatus();
}

absl::Status CheckpointSchedule::Judge(const absl::Status& status) {
  if (std::exchange(judged_, true)) return absl::OkStatus();
  if (status.ok()) {
    if (patience_.failures() > 0) {
      parts_.progress.Notice(
          absl::StrCat("checkpoints are written again, the first is of step ", begun_));
    }
    patience_.Succeeded();
    best_whole_ = best_begun_;
    return status;
  }
  if (!MayBeTriedAgain(status)) return status;
  const absl::Duration pause = patience_.Failed();
  const uint32_t failures = patience_.failures();
  OXBOW_RETURN_IF_ERROR(disk_.StopUnwritten(status));
  if (patience_.over() && failures >= kFailuresMax) {
    return Annotate(status, absl::StrCat("no checkpoint could be written, ", failures,
                                         " times in a row over more than ",
                                         absl::FormatDuration(disk_.patience())));
  }
  again_ = Now() + pause;
  best_ = best_whole_;
  disk_.NoteUnwritten("checkpoint", status, pause);
  if (failures == 1) {
    parts_.progress.Notice(absl::StrCat(
        "the checkpoint of step ", begun_,
        " cannot be written, the next steps try again: ", std::string(status.message())));
  }
  return absl::OkStatus();
}

absl::Status CheckpointSchedule::Write(uint64_t committed, const MakeState& state) {
  parts_.progress.Enter("checkpoint");
  // First: until the one before is whole, the buffer must keep what that one names.
  OXBOW_RETURN_IF_ERROR(Judge(parts_.await_checkpoint()));
  again_.reset();
  best_begun_ = best_;
  OXBOW_ASSIGN_OR_RETURN(RunState made, state(/*keep_all=*/patience_.failures() > 0));
  const absl::Status begun = parts_.checkpoint(std::move(made));
  begun_ = committed;
  judged_ = false;
  return begun.ok() ? begun : Judge(begun);
}

absl::Status CheckpointSchedule::WriteLast(uint64_t committed, const MakeState& state) {
  if (begun_ != committed || committed == 0) OXBOW_RETURN_IF_ERROR(Write(committed, state));
  while (true) {
    OXBOW_RETURN_IF_ERROR(Judge(parts_.await_checkpoint()));
    if (!again_.has_value()) return absl::OkStatus();
    OXBOW_RETURN_IF_ERROR(disk_.Pause(*again_ - Now()));
    OXBOW_RETURN_IF_ERROR(Write(committed, state));
  }
}

}  // namespace oxbow::learner
