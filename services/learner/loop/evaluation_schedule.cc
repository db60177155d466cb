// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/evaluation_schedule.h"

#include "base/log.h"
#include "base/status_macros.h"
#include "metrics/step_metrics.h"

namespace oxbow::learner {

EvaluationSchedule::EvaluationSchedule(Options options, const LoopParts& parts, RunDisk& disk)
    : options_(std::move(options)),
      parts_(parts),
      disk_(disk),
      base_(options_.directory),
      owed_(options_.owed) {}

bool EvaluationSchedule::Wanted(uint64_t committed) const {
  return options_.every > 0 && evaluated_ != committed &&
         (committed % options_.every == 0 || committed == options_.steps);
}

// False: it has failed, and `numbers` say so.
bool EvaluationSchedule::Begin(uint64_t committed, std::optional<uint64_t> owed, Numbers& numbers) {
  parts_.progress.Enter("eval");
  evaluated_ = committed;
  evaluation_.clear();
  const absl::Status begun = parts_.begin_evaluation(owed);
  if (!begun.ok()) Failed(committed, begun, numbers);
  return begun.ok();
}

absl::Status EvaluationSchedule::Evaluate(uint64_t committed, Numbers& numbers) {
  // A run that drains has no time for it: its checkpoint is due.
  if (!Wanted(committed) || disk_.drain().asked()) return absl::OkStatus();
  if (!Begin(committed, std::nullopt, numbers)) return absl::OkStatus();
  return Take(committed, numbers);
}

absl::Status EvaluationSchedule::AfterStep(uint64_t committed, bool may_go_on, Numbers& numbers) {
  OXBOW_RETURN_IF_ERROR(Finish());
  if (!Wanted(committed)) return absl::OkStatus();
  if (disk_.drain().asked()) {
    Owe(committed);
    return absl::OkStatus();
  }
  if (!options_.beside || !may_go_on) return Evaluate(committed, numbers);
  if (Begin(committed, std::nullopt, numbers)) {
    waiting_.emplace(WaitingLine{.committed = committed, .numbers = {}});
  }
  return absl::OkStatus();
}

absl::Status EvaluationSchedule::Log(uint64_t committed, double wall_seconds,
                                     const Numbers& numbers) {
  if (waiting_.has_value() && waiting_->committed == committed) {
    waiting_->wall_seconds = wall_seconds;
    waiting_->numbers = numbers;
    return absl::OkStatus();
  }
  OXBOW_RETURN_IF_ERROR(disk_.Persist("metrics", [&] {
    return parts_.log.Step(static_cast<int64_t>(committed), wall_seconds, numbers);
  }));
  if (!std::exchange(logged_, true) || evaluated_ == committed) parts_.logged();
  return absl::OkStatus();
}

absl::Status EvaluationSchedule::Finish() {
  if (!waiting_.has_value()) return absl::OkStatus();
  parts_.progress.Enter("eval");
  WaitingLine line = *std::exchange(waiting_, std::nullopt);
  OXBOW_RETURN_IF_ERROR(Take(line.committed, line.numbers));
  OXBOW_RETURN_IF_ERROR(Log(line.committed, line.wall_seconds, line.numbers));
  untold_ = evaluation_;
  return absl::OkStatus();
}

// Only a metric is missing; training is not affected.
void EvaluationSchedule::Failed(uint64_t committed, const absl::Status& why, Numbers& numbers) {
  if (absl::IsCancelled(why) && disk_.drain().asked()) return Owe(committed);
  evaluation_ = {{metric::kEvalFailed, 1}};
  numbers.insert(evaluation_.begin(), evaluation_.end());
  const absl::Status noted = parts_.log.EvaluationFailed({.step = static_cast<int64_t>(committed),
                                                          .reason = std::string(why.message()),
                                                          .missed = options_.awaiting});
  if (!noted.ok()) {
    OXBOW_LOG(Warning) << "the reason was not written"
                       << Field("error", std::string(noted.message()));
  }
  parts_.metrics.EvaluationFailed();
  parts_.coordinator.events().NoteFailure("evaluation", std::string(why.message()));
  OXBOW_LOG(Warning) << "evaluation failed" << Field("step", committed)
                     << Field("error", std::string(why.message()));
}

// A run that is resumed at step 0 begins again, with its evaluation.
void EvaluationSchedule::Owe(uint64_t committed) {
  if (committed == 0) return;
  owed_.insert(committed);
  OXBOW_LOG(Info) << "an evaluation is owed: the run was stopped before its end, and draws it when "
                     "it is resumed"
                  << Field("step", committed);
}

absl::StatusOr<bool> EvaluationSchedule::DrawOwed() {
  if (options_.every == 0) return false;
  for (const uint64_t committed : options_.owed) {
    if (disk_.drain().asked()) break;
    Numbers numbers;
    owed_.erase(committed);
    if (Begin(committed, committed, numbers)) {
      OXBOW_RETURN_IF_ERROR(Take(committed, numbers));
    }
    if (numbers.empty()) continue;
    OXBOW_RETURN_IF_ERROR(disk_.Persist(
        "metrics", [&] { return parts_.log.AddToStep(static_cast<int64_t>(committed), numbers); }));
    untold_ = std::move(numbers);
    parts_.logged();
  }
  return owed_ != options_.owed;
}

absl::Status EvaluationSchedule::Take(uint64_t committed, Numbers& numbers) {
  absl::StatusOr<EvaluationResult> result = parts_.await_evaluation();
  if (!result.ok()) {
    // If a rank is lost, the learner begins again from its checkpoint, and so does the evaluation.
    OXBOW_RETURN_IF_ERROR(parts_.assembler.stopped());
    Failed(committed, result.status(), numbers);
    return absl::OkStatus();
  }
  std::vector<std::string> prompts;
  for (const io::EvaluatedPicture& picture : result->pictures) prompts.push_back(picture.prompt);
  if (const auto moved = base_.DistanceAt(committed, prompts, result->small)) {
    result->metrics[metric::kEvalBaseDistance] = *moved;
  }
  evaluation_ = result->metrics;
  numbers.insert(result->metrics.begin(), result->metrics.end());
  const absl::Status status = disk_.PersistUnlessDrained("samples", [&] {
    return parts_.log.Evaluation(static_cast<int64_t>(committed), result->caption, result->sheet,
                                 result->pictures, result->files);
  });
  if (!status.ok()) {
    OXBOW_LOG(Warning) << "images were not written"
                       << Field("error", std::string(status.message()));
  }
  return absl::OkStatus();
}

}  // namespace oxbow::learner
