// SPDX-License-Identifier: Apache-2.0
// When the learner's loop evaluates, and what becomes of the numbers.
#include <cmath>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "services/learner/learner_loop.h"

namespace oxbow::learner {

bool LearnerLoop::EvaluationWanted() const {
  return options_.eval_every > 0 && evaluated_ != committed_ &&
         (committed_ % options_.eval_every == 0 || committed_ == options_.steps);
}

// A run that drains has no time for it: its checkpoint is due.
bool LearnerLoop::EvaluationDue() const { return EvaluationWanted() && !drain_; }

// Whether the weights were evaluated, and no checkpoint is as good. The untrained model has none.
bool LearnerLoop::EvaluatedBest() {
  if (committed_ == 0 || evaluated_ != committed_) return false;
  const auto found = evaluation_.find(options_.best_metric);
  if (found == evaluation_.end() || !(found->second > best_.value_or(-HUGE_VAL))) return false;
  best_ = found->second;
  return true;
}

absl::Status LearnerLoop::Evaluate() {
  parts_.progress.Enter("eval");
  evaluated_ = committed_;
  evaluation_.clear();
  if (parts_.begin_evaluation != nullptr) {
    if (const absl::Status begun = parts_.begin_evaluation(); !begun.ok()) {
      EvaluationFailed(committed_, begun);
      return absl::OkStatus();
    }
  }
  return TakeEvaluation(committed_, numbers_);
}

void LearnerLoop::BeginBeside() {
  parts_.progress.Enter("eval");
  evaluated_ = committed_;
  evaluation_.clear();
  if (const absl::Status begun = parts_.begin_evaluation(); !begun.ok()) {
    return EvaluationFailed(committed_, begun);
  }
  beside_.emplace(WaitingLine{.committed = committed_});
}

// The line of the step that was evaluated comes before any later one.
absl::Status LearnerLoop::FinishBeside() {
  if (!beside_.has_value()) return absl::OkStatus();
  parts_.progress.Enter("eval");
  WaitingLine line = *std::exchange(beside_, std::nullopt);
  OXBOW_RETURN_IF_ERROR(TakeEvaluation(line.committed, line.numbers));
  OXBOW_RETURN_IF_ERROR(
      parts_.log.Step(static_cast<int64_t>(line.committed), line.wall_seconds, line.numbers));
  untold_ = evaluation_;
  logged_ = true;
  parts_.evaluated();
  return absl::OkStatus();
}

// Only a metric is missing; training is not affected.
void LearnerLoop::EvaluationFailed(uint64_t committed, const absl::Status& why) {
  if (absl::IsCancelled(why)) return WarnOfMissingEvaluation(committed);
  parts_.metrics.EvaluationFailed();
  parts_.coordinator.NoteFailure("evaluation", std::string(why.message()));
  OXBOW_LOG(Warning) << "evaluation failed" << Field("step", committed)
                     << Field("error", std::string(why.message()));
}

// A resumed run begins with the step after its checkpoint; only step 0 is evaluated again.
void LearnerLoop::WarnOfMissingEvaluation(uint64_t committed) const {
  if (committed == 0) return;
  OXBOW_LOG(Warning) << "an evaluation is missing: the run was stopped before its end"
                     << Field("step", committed);
}

absl::Status LearnerLoop::TakeEvaluation(uint64_t committed,
                                         std::map<std::string, double>& numbers) {
  const absl::StatusOr<EvaluationResult> result = parts_.evaluate();
  if (!result.ok()) {
    // If a rank is lost, the learner begins again from its checkpoint, and so does the evaluation.
    OXBOW_RETURN_IF_ERROR(parts_.assembler.stopped());
    EvaluationFailed(committed, result.status());
    return absl::OkStatus();
  }
  evaluation_ = result->metrics;
  numbers.insert(result->metrics.begin(), result->metrics.end());
  const absl::Status status = parts_.log.Evaluation(
      static_cast<int64_t>(committed), result->caption, result->sheet, result->pictures);
  if (!status.ok()) {
    OXBOW_LOG(Warning) << "images were not written"
                       << Field("error", std::string(status.message()));
  }
  return absl::OkStatus();
}

}  // namespace oxbow::learner
