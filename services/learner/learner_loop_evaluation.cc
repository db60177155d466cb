// SPDX-License-Identifier: Apache-2.0
// When the learner's loop evaluates, and what becomes of the numbers.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "metrics/step_metrics.h"
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

// False: it has failed, and `numbers` say so.
bool LearnerLoop::BeginEvaluation(uint64_t committed, std::optional<uint64_t> owed,
                                  std::map<std::string, double>& numbers) {
  parts_.progress.Enter("eval");
  evaluated_ = committed;
  evaluation_.clear();
  const absl::Status begun = parts_.begin_evaluation(owed);
  if (!begun.ok()) EvaluationFailed(committed, begun, numbers);
  return begun.ok();
}

absl::Status LearnerLoop::Evaluate() {
  if (!BeginEvaluation(committed_, std::nullopt, numbers_)) return absl::OkStatus();
  return TakeEvaluation(committed_, numbers_);
}

// The line of the step that was evaluated comes before any later one.
absl::Status LearnerLoop::FinishBeside() {
  if (!beside_.has_value()) return absl::OkStatus();
  parts_.progress.Enter("eval");
  WaitingLine line = *std::exchange(beside_, std::nullopt);
  OXBOW_RETURN_IF_ERROR(TakeEvaluation(line.committed, line.numbers));
  OXBOW_RETURN_IF_ERROR(LogStep(line.committed, line.wall_seconds, line.numbers));
  untold_ = evaluation_;
  logged_ = true;
  parts_.evaluated();
  return absl::OkStatus();
}

// Settings that wait for the number of an evaluation.
std::vector<std::string> LearnerLoop::WaitingForEvaluation() const {
  std::vector<std::string> settings;
  if (std::any_of(options_.stop_if.begin(), options_.stop_if.end(),
                  [](const v1::StopRule& rule) { return metric::IsOfEvaluation(rule.metric()); })) {
    settings.emplace_back("run.stop_if");
  }
  if (metric::IsOfEvaluation(options_.best_metric)) settings.emplace_back("checkpoint.best");
  if (options_.eval_before_publish) settings.emplace_back("publish.reward_floor");
  return settings;
}

// Only a metric is missing; training is not affected.
void LearnerLoop::EvaluationFailed(uint64_t committed, const absl::Status& why,
                                   std::map<std::string, double>& numbers) {
  if (absl::IsCancelled(why) && drain_) return Owe(committed);
  evaluation_ = {{metric::kEvalFailed, 1}};
  numbers.insert(evaluation_.begin(), evaluation_.end());
  const absl::Status noted = parts_.log.EvaluationFailed({.step = static_cast<int64_t>(committed),
                                                          .reason = std::string(why.message()),
                                                          .missed = WaitingForEvaluation()});
  if (!noted.ok()) {
    OXBOW_LOG(Warning) << "the reason was not written"
                       << Field("error", std::string(noted.message()));
  }
  parts_.metrics.EvaluationFailed();
  parts_.coordinator.NoteFailure("evaluation", std::string(why.message()));
  OXBOW_LOG(Warning) << "evaluation failed" << Field("step", committed)
                     << Field("error", std::string(why.message()));
}

// A run that is resumed at step 0 begins again, with its evaluation.
void LearnerLoop::Owe(uint64_t committed) {
  if (committed == 0) return;
  owed_.insert(committed);
  OXBOW_LOG(Info) << "an evaluation is owed: the run was stopped before its end, and draws it when "
                     "it is resumed"
                  << Field("step", committed);
}

// Before anything else, since there is no better moment: one of them may have weights of its own,
// and stop rules and the best checkpoint may depend on the other. Their numbers join the lines of
// their steps.
absl::Status LearnerLoop::DrawOwed() {
  if (options_.owed.empty() || options_.eval_every == 0) return absl::OkStatus();
  for (const uint64_t committed : options_.owed) {
    if (drain_) break;
    std::map<std::string, double> numbers;
    owed_.erase(committed);
    if (BeginEvaluation(committed, committed, numbers)) {
      OXBOW_RETURN_IF_ERROR(TakeEvaluation(committed, numbers));
    }
    if (numbers.empty()) continue;
    OXBOW_RETURN_IF_ERROR(Persist(
        "metrics", [&] { return parts_.log.AddToStep(static_cast<int64_t>(committed), numbers); }));
    untold_ = std::move(numbers);
    parts_.evaluated();
  }
  if (owed_ == options_.owed) return absl::OkStatus();
  if (evaluated_ == committed_) numbers_ = evaluation_;
  ApplyStopRules();
  numbers_.clear();
  EvaluatedBest();
  return WriteCheckpoint();
}

absl::Status LearnerLoop::TakeEvaluation(uint64_t committed,
                                         std::map<std::string, double>& numbers) {
  absl::StatusOr<EvaluationResult> result = parts_.await_evaluation();
  if (!result.ok()) {
    // If a rank is lost, the learner begins again from its checkpoint, and so does the evaluation.
    OXBOW_RETURN_IF_ERROR(parts_.assembler.stopped());
    EvaluationFailed(committed, result.status(), numbers);
    return absl::OkStatus();
  }
  std::vector<std::string> prompts;
  for (const io::EvaluatedPicture& picture : result->pictures) prompts.push_back(picture.prompt);
  if (const auto moved = base_.DistanceAt(committed, prompts, result->small)) {
    result->metrics[metric::kEvalBaseDistance] = *moved;
  }
  evaluation_ = result->metrics;
  numbers.insert(result->metrics.begin(), result->metrics.end());
  const absl::Status status = PersistUnlessDrained("samples", [&] {
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
