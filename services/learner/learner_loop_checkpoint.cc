// SPDX-License-Identifier: Apache-2.0
// Writes of the learner's loop to the run's directory, and how it bears with a disk that is full
// or away: nothing that is committed is lost, and the run ends only when patience is over.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "services/learner/learner_loop.h"

namespace oxbow::learner {
namespace {

// In a row, and over at least `services.patience_minutes`. Steps may take long.
constexpr uint32_t kCheckpointFailuresMax = 5;
constexpr absl::Duration kPauseSlice = absl::Milliseconds(500);
constexpr absl::Duration kAfterDrainGrace = absl::Seconds(50);
constexpr absl::Duration kPauseAfterDrain = absl::Seconds(10);

absl::Duration Now() { return Clock::Steady().Now(); }

// A checkpoint that does not read back is written again as well.
bool CheckpointMayBeTriedAgain(const absl::Status& status) {
  return MayPass(status) || absl::IsDataLoss(status);
}

}  // namespace

// Says that a write has failed: in the log, to people who look at the run, and to its alerts.
void LearnerLoop::NoteUnwritten(const std::string& what, const absl::Status& why,
                                absl::Duration pause) {
  OXBOW_LOG(Warning) << "the run's disk cannot be written, it is tried again" << Field("what", what)
                     << Field("step", committed_) << Field("pause", pause)
                     << Field("error", std::string(why.message()));
  parts_.metrics.WriteFailed(what);
  parts_.coordinator.NoteFailure("disk", absl::StrCat(what, ": ", std::string(why.message())));
}

// A stop request ends the pause, so that what is still to be written is tried at once, and soon
// again.
absl::Status LearnerLoop::Pause(absl::Duration pause) {
  const bool drained = drain_;
  const absl::Duration end = Now() + (drained ? std::min(pause, kPauseAfterDrain) : pause);
  while (Now() < end && drain_ == drained) {
    OXBOW_RETURN_IF_ERROR(parts_.assembler.stopped());
    absl::SleepFor(std::min(kPauseSlice, end - Now()));
  }
  return absl::OkStatus();
}

// A run that was asked to stop says why it cannot write before its launcher loses patience.
absl::Status LearnerLoop::StopUnwritten(const absl::Status& why) const {
  if (!DrainOverdue(std::min(options_.patience, kAfterDrainGrace))) return absl::OkStatus();
  return Annotate(why, absl::StrCat("asked to stop, and step ", committed_, " cannot be written"));
}

absl::Status LearnerLoop::Persist(const std::string& what,
                                  const std::function<absl::Status()>& write) {
  return Insist(Clock::Steady(), options_.patience, write,
                [&](const absl::Status& why, absl::Duration pause) {
                  NoteUnwritten(what, why, pause);
                  OXBOW_RETURN_IF_ERROR(StopUnwritten(why));
                  return Pause(pause);
                });
}

// A write that a draining run does without: kCancelled instead of another try.
absl::Status LearnerLoop::PersistUnlessDrained(const std::string& what,
                                               const std::function<absl::Status()>& write) {
  bool tried = false;
  return Persist(what, [&] {
    const bool again = std::exchange(tried, true);
    return again && drain_ ? absl::CancelledError("drained") : write();
  });
}

absl::Status LearnerLoop::LogStep(uint64_t committed, double wall_seconds,
                                  const std::map<std::string, double>& numbers) {
  return Persist("metrics", [&] {
    return parts_.log.Step(static_cast<int64_t>(committed), wall_seconds, numbers);
  });
}

// Whether this step has a checkpoint: its number says so, or the last one could not be written.
bool LearnerLoop::CheckpointDue() const {
  if (options_.checkpoint_every > 0 && committed_ % options_.checkpoint_every == 0) return true;
  return again_.has_value() && Now() >= *again_;
}

// Judges the write that was begun last, if it has ended.
absl::Status LearnerLoop::LookAtCheckpoint() {
  const std::optional<absl::Status> ended = parts_.checkpoint_ended();
  return ended.has_value() ? JudgeCheckpoint(*ended) : absl::OkStatus();
}

// Judges the outcome of the write that was begun last. An error ends the run.
absl::Status LearnerLoop::JudgeCheckpoint(const absl::Status& status) {
  if (std::exchange(judged_, true)) return absl::OkStatus();
  if (status.ok()) {
    if (patience_.failures() > 0) {
      parts_.progress.Notice(
          absl::StrCat("checkpoints are written again, the first is of step ", checkpointed_));
    }
    patience_.Succeeded();
    best_whole_ = best_begun_;
    return status;
  }
  if (!CheckpointMayBeTriedAgain(status)) return status;
  const absl::Duration pause = patience_.Failed();
  const uint32_t failures = patience_.failures();
  OXBOW_RETURN_IF_ERROR(StopUnwritten(status));
  if (patience_.over() && failures >= kCheckpointFailuresMax) {
    return Annotate(status, absl::StrCat("no checkpoint could be written, ", failures,
                                         " times in a row over more than ",
                                         absl::FormatDuration(options_.patience)));
  }
  again_ = Now() + pause;
  best_ = best_whole_;
  NoteUnwritten("checkpoint", status, pause);
  if (failures == 1) {
    parts_.progress.Notice(absl::StrCat(
        "the checkpoint of step ", checkpointed_,
        " cannot be written, the next steps try again: ", std::string(status.message())));
  }
  return absl::OkStatus();
}

absl::Status LearnerLoop::WriteCheckpoint() {
  OXBOW_RETURN_IF_ERROR(FinishBeside());
  parts_.progress.Enter("checkpoint");
  // First: until the one before is whole, the buffer must keep what that one names.
  OXBOW_RETURN_IF_ERROR(JudgeCheckpoint(parts_.await_checkpoint()));
  again_.reset();
  best_begun_ = best_;
  const std::string name = CheckpointName(committed_);
  RunState state{.committed_steps = committed_,
                 .policy_version = parts_.trainer.version().value,
                 .epoch = options_.epoch.value};
  // A resumed run plans the steps that were planned ahead again, from the position before the first
  // of them.
  if (evaluated_ == committed_) state.evaluated = evaluation_;
  state.owed_evaluations.assign(owed_.begin(), owed_.end());
  const auto planned = positions_.find(committed_);
  state.prompts = planned != positions_.end() ? planned->second : parts_.prompts.position();
  state.reuse = reuse_.state();
  state.known = choice_.known();
  state.wall_seconds = options_.wall_seconds_before + parts_.progress.wall_seconds();
  if (parts_.buffer != nullptr) {
    // Until this checkpoint is durable the learner may go back to any it has: the buffer keeps one
    // more, and all while none can be written.
    const uint32_t keep = patience_.failures() > 0 ? 0 : options_.checkpoints_kept + 1;
    const absl::Status kept = parts_.buffer->Checkpoint(name, keep);
    OXBOW_RETURN_IF_ERROR(parts_.buffer->ended());
    if (kept.ok()) state.buffer_checkpoint = name;
    if (!kept.ok()) {
      OXBOW_LOG(Warning) << "checkpoint without the replay buffer" << Field("step", committed_)
                         << Field("error", std::string(kept.message()));
    }
  }
  const absl::Status begun = parts_.checkpoint(std::move(state));
  checkpointed_ = committed_;
  judged_ = false;
  return begun.ok() ? begun : JudgeCheckpoint(begun);
}

// Returns once a checkpoint of the last committed step is whole.
absl::Status LearnerLoop::WriteLastCheckpoint() {
  if (checkpointed_ != committed_ || committed_ == 0) OXBOW_RETURN_IF_ERROR(WriteCheckpoint());
  while (true) {
    OXBOW_RETURN_IF_ERROR(JudgeCheckpoint(parts_.await_checkpoint()));
    if (!again_.has_value()) return absl::OkStatus();
    OXBOW_RETURN_IF_ERROR(Pause(*again_ - Now()));
    OXBOW_RETURN_IF_ERROR(WriteCheckpoint());
  }
}

}  // namespace oxbow::learner
