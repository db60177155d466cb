// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/learner_loop.h"

#include <set>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/trace.h"
#include "metrics/step_metrics.h"
#include "services/learner/checkpoint/checkpoint_store.h"

namespace oxbow::learner {

LearnerLoop::LearnerLoop(Options options, LoopParts parts, StepRules rules)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      committed_(options_.sampling.first_step.value),
      disk_(options_.patience, committed_, drain_, parts_),
      rules_(std::move(rules)),
      sampling_(options_.sampling, parts_, rules_, disk_),
      measure_(options_.measure, parts_),
      evaluations_(options_.evaluations, parts_, disk_),
      checkpoints_(options_.checkpoints, parts_, disk_),
      stop_values_(options_.stop_values),
      stop_reason_(config::StopReason(options_.stop_if, stop_values_)) {}

void LearnerLoop::RequestDrain() {
  drain_.Ask();
  parts_.cancel_scoring();
  parts_.coordinator.Drain();
}

absl::Status LearnerLoop::Run() {
  parts_.metrics.PolicyVersionIs(parts_.trainer.version().value);
  // Never withheld: workers have no other weights.
  OXBOW_RETURN_IF_ERROR(parts_.publish(parts_.trainer.version(), LearnerStep(committed_)).status());
  OXBOW_RETURN_IF_ERROR(DrawOwed());
  bool finish = committed_ == 0;  // A resumed run has finished its last step.
  while (true) {
    if (!last()) {
      const absl::Status planned = sampling_.PlanAhead(committed_);
      if (!drain_.asked() || !absl::IsCancelled(planned)) OXBOW_RETURN_IF_ERROR(planned);
    }
    if (std::exchange(finish, true)) OXBOW_RETURN_IF_ERROR(FinishStep());
    if (last()) break;
    const absl::Status status = TrainOne(LearnerStep(committed_));
    if (absl::IsCancelled(status) && drain_.asked()) {
      break;  // The resumed run leases the groups of this step again.
    }
    if (unscored_.tripped()) OXBOW_RETURN_IF_ERROR(WriteLastCheckpoint());
    OXBOW_RETURN_IF_ERROR(status);
  }
  if (drain_.asked() && committed_ < steps()) LogUnfinished();
  return WriteLastCheckpoint();
}

absl::Status LearnerLoop::DrawOwed() {
  OXBOW_ASSIGN_OR_RETURN(const bool drawn, evaluations_.DrawOwed());
  if (!drawn) return absl::OkStatus();
  numbers_ = evaluations_.NumbersAt(committed_);
  ApplyStopRules();
  checkpoints_.IsBest(committed_, std::exchange(numbers_, {}));
  return WriteCheckpoint();
}

absl::Status LearnerLoop::TrainOne(LearnerStep step) {
  const TraceScope scope(TraceOfStep(options_.sampling.run_id, step));
  OXBOW_ASSIGN_OR_RETURN(CollectedGroups collected, sampling_.Collect(step));
  OXBOW_RETURN_IF_ERROR(unscored_.Check(step, collected.received,
                                        parts_.coordinator.events().unscored_reason(),
                                        collected.samples_lost()));
  OXBOW_ASSIGN_OR_RETURN(std::vector<rl::Group> groups, sampling_.Build(step, collected));
  OXBOW_RETURN_IF_ERROR(disk_.PersistUnlessDrained("steps", [&] {
    return parts_.step_log.Freeze(options_.epoch, step, parts_.trainer.version(),
                                  collected.received, collected.choice);
  }));
  parts_.announce(step, collected);
  OXBOW_ASSIGN_OR_RETURN(rl::StepResult result,
                         parts_.trainer.Step(step, groups, [this] { return drain_.Overdue(); }));
  numbers_ = std::move(result.metrics);
  Commit(step, collected);
  OXBOW_RETURN_IF_ERROR(PublishIfDue());
  return CommitToBuffer(step, collected, result);
}

// The weights have moved: rules, numbers and the plan follow.
void LearnerLoop::Commit(LearnerStep step, const CollectedGroups& groups) {
  parts_.metrics.PolicyVersionIs(parts_.trainer.version().value);
  for (const auto& rule : rules_) {
    for (size_t i = 0; i < groups.received.size(); ++i) {
      rule->See(step, groups.received[i], groups.planned[i]);
    }
    rule->Follow(step, groups, numbers_);
  }
  measure_.Measure(step, groups, sampling_.WindowOf(step), numbers_);
  committed_ = step.value + 1;
  if (committed_ == steps()) parts_.metrics.RunComplete();
  parts_.coordinator.Commit(step);
}

// Tries withheld weights again after every step: a new evaluation may admit them.
absl::Status LearnerLoop::PublishIfDue() {
  if (drain_.asked()) return absl::OkStatus();  // Nobody samples with them; the checkpoint is due.
  if (committed_ % options_.publish_every != 0 && !publication_owed_) return absl::OkStatus();
  if (options_.eval_before_publish) {
    OXBOW_RETURN_IF_ERROR(evaluations_.Evaluate(committed_, numbers_));
  }
  parts_.progress.Enter("publish");
  const absl::StatusOr<bool> out =
      parts_.publish(parts_.trainer.version(), LearnerStep(committed_));
  publication_owed_ = out.ok() && !*out;
  // A finished run needs no more groups.
  if (absl::IsFailedPrecondition(out.status()) && last()) return absl::OkStatus();
  return out.status();
}

absl::Status LearnerLoop::CommitToBuffer(LearnerStep step, const CollectedGroups& groups,
                                         const rl::StepResult& result) {
  if (parts_.buffer == nullptr) return absl::OkStatus();
  parts_.progress.Enter("offer");
  StepCommit commit{
      .step = step, .offers = {}, .groups = {}, .used = {}, .evict = result.evict, .rescored = {}};
  // Branches of one head are one use.
  const std::set<EntryId> used(result.used.begin(), result.used.end());
  commit.used.assign(used.begin(), used.end());
  for (const auto& rule : rules_) rule->Offer(groups, commit, numbers_);
  parts_.buffer->Commit(std::move(commit));
  measure_.MeasureBuffer(numbers_);
  return parts_.buffer->ended();
}

// The work after a commit for which workers need not wait.
absl::Status LearnerLoop::FinishStep() {
  const LearnerStep finished(committed_ > 0 ? committed_ - 1 : 0);
  const TraceScope scope(TraceOfStep(options_.sampling.run_id, finished));
  const bool end = last();
  OXBOW_RETURN_IF_ERROR(checkpoints_.Look());
  const bool due = checkpoints_.Due(committed_);
  // A checkpoint has the numbers of all evaluations before it.
  OXBOW_RETURN_IF_ERROR(evaluations_.AfterStep(committed_, /*may_go_on=*/!due && !end, numbers_));
  const bool best = checkpoints_.IsBest(committed_, evaluations_.NumbersAt(committed_));
  if ((committed_ > 0 && (due || best)) || end) OXBOW_RETURN_IF_ERROR(WriteCheckpoint());
  parts_.progress.Enter("log");
  const double total = AddTimes();
  const double wall = options_.wall_seconds_before + parts_.progress.wall_seconds();
  OXBOW_RETURN_IF_ERROR(evaluations_.Log(committed_, wall, numbers_));
  numbers_[metric::kTimeWallS] = wall;
  ApplyStopRules();
  numbers_.erase(metric::kTimeWallS);
  numbers_.merge(evaluations_.TakeUntold());
  parts_.progress.StepCommitted(committed_, parts_.trainer.version().value, numbers_);
  if (committed_ > 0) {
    parts_.metrics.StepCommitted(total, numbers_);
    OXBOW_LOG(Info) << "step committed" << Field("step", finished)
                    << Field("policy_version", parts_.trainer.version())
                    << Field("reward", numbers_[metric::kTrainRewardMean])
                    << Field("seconds", total);
  }
  numbers_.clear();
  return last() ? absl::OkStatus() : sampling_.EncodeAhead();
}

// Returns the seconds of the step.
double LearnerLoop::AddTimes() {
  double total = 0;
  for (const auto& [phase, seconds] : parts_.progress.TakeSeconds()) {
    numbers_[metric::kTimePhaseS.Of(phase)] = seconds;
    total += seconds;
  }
  numbers_[metric::kTimeStepS] = total;
  const auto samples = numbers_.find(metric::kTrainSamples);
  if (samples != numbers_.end() && total > 0) {
    numbers_[metric::kThroughputSamplesPerS] = samples->second / total;
  }
  if (parts_.copies_failed) {
    numbers_[metric::kCheckpointCopiesFailed] = static_cast<double>(parts_.copies_failed());
  }
  return total;
}

// Says what a run that is stopped was doing since its last step. A step whose evaluation is cut off
// has no line yet.
void LearnerLoop::LogUnfinished() {
  if (evaluations_.beside()) return;
  std::map<std::string, double> numbers;
  for (const auto& [phase, seconds] : parts_.progress.TakeSeconds()) {
    numbers[metric::kTimeUnfinishedPhaseS.Of(phase)] = seconds;
  }
  const absl::Status logged = parts_.log.AddToStep(static_cast<int64_t>(committed_), numbers);
  if (logged.ok()) return;
  OXBOW_LOG(Warning) << "no time of the last phases" << Field("error", logged.message());
}

void LearnerLoop::ApplyStopRules() {
  config::AddValues(options_.stop_if, committed_, numbers_, stop_values_);
  if (committed_ >= steps()) return;
  stop_reason_ = config::StopReason(options_.stop_if, stop_values_);
  if (!stop_reason_.has_value()) return;
  parts_.metrics.RunComplete();
  OXBOW_LOG(Info) << "run is stopped by its rule" << Field("step", committed_)
                  << Field("reason", *stop_reason_);
}

absl::Status LearnerLoop::WriteCheckpoint() {
  OXBOW_RETURN_IF_ERROR(evaluations_.Finish());
  return checkpoints_.Write(committed_, [this](bool keep_all) { return StateToSave(keep_all); });
}

absl::Status LearnerLoop::WriteLastCheckpoint() {
  OXBOW_RETURN_IF_ERROR(evaluations_.Finish());
  return checkpoints_.WriteLast(committed_,
                                [this](bool keep_all) { return StateToSave(keep_all); });
}

absl::StatusOr<RunState> LearnerLoop::StateToSave(bool keep_all) {
  RunState state{.committed_steps = committed_,
                 .policy_version = parts_.trainer.version().value,
                 .epoch = options_.epoch.value};
  state.evaluated = evaluations_.NumbersAt(committed_);
  state.owed_evaluations.assign(evaluations_.owed().begin(), evaluations_.owed().end());
  state.prompts = sampling_.PositionAt(committed_);
  for (const auto& rule : rules_) rule->Save(state);
  state.wall_seconds = options_.wall_seconds_before + parts_.progress.wall_seconds();
  if (parts_.buffer == nullptr) return state;
  // Until this checkpoint is durable the learner may go back to any it has: the buffer keeps one
  // more.
  const std::string name = CheckpointName(committed_);
  const absl::Status kept =
      parts_.buffer->Checkpoint(name, keep_all ? 0 : options_.checkpoints_kept + 1);
  OXBOW_RETURN_IF_ERROR(parts_.buffer->ended());
  if (kept.ok()) state.buffer_checkpoint = name;
  if (!kept.ok()) {
    OXBOW_LOG(Warning) << "checkpoint without the replay buffer" << Field("step", committed_)
                       << Field("error", std::string(kept.message()));
  }
  return state;
}

}  // namespace oxbow::learner
