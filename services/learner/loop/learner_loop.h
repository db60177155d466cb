// SPDX-License-Identifier: Apache-2.0
// The learner's loop over steps. Its thread is the only one that uses torch.
//
//   plan k .. k+S -> [log, evaluate and checkpoint step k-1 while workers sample] -> wait for step
//   k -> freeze its manifest -> train -> publish -> offer and advance the buffer -> k+1
//
// With S = 0 step k is planned after the buffer has processed the commit of k-1, so that a run is a
// function of its seed. Evaluation and checkpoints use the weights after k-1, which do not change
// until step k trains; they run while workers sample.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "config/stop_rules.h"
#include "services/learner/loop/checkpoint_schedule.h"
#include "services/learner/loop/evaluation_schedule.h"
#include "services/learner/loop/loop_parts.h"
#include "services/learner/loop/rollout_numbers.h"
#include "services/learner/loop/run_disk.h"
#include "services/learner/loop/score_watch.h"
#include "services/learner/loop/step_sampling.h"
#include "services/learner/plan/step_rule.h"

namespace oxbow::learner {

class LearnerLoop {
 public:
  struct Options {
    Epoch epoch;
    StepSampling::Options sampling;
    StepMeasure::Options measure;
    EvaluationSchedule::Options evaluations;
    // Evaluate before publishing, because the reward floor needs the result; else while workers
    // sample.
    bool eval_before_publish = false;
    CheckpointSchedule::Options checkpoints;
    uint32_t checkpoints_kept = 2;
    uint32_t publish_every = 1;
    config::StopRuleList stop_if;
    config::MetricSeries stop_values;  // Values of their metrics before the run was resumed.
    double wall_seconds_before = 0;    // Time of the run before it was resumed.
    absl::Duration patience = absl::Minutes(30);  // With a disk that is full or away.
  };

  // `rules`: how steps get their groups.
  LearnerLoop(Options options, LoopParts parts, StepRules rules);

  // Runs to the last step, until a rule of `stop_if` is met, or until a drain request. Returns OK
  // when the run is complete, stopped or drained; then a checkpoint of the last step is whole on
  // disk. kFailedPrecondition, with a checkpoint, if nearly no image can be scored.
  absl::Status Run();

  // Ends the run, after the step in progress if all its groups have arrived and its update ends
  // within DrainRequest::kGrace; else the step is left as if it had not begun. The checkpoint of
  // the last committed step comes before anything else. A running evaluation ends at once, and none
  // begins: the checkpoint says that the run owes it. Thread-safe.
  void RequestDrain();

  RunDisk& disk() { return disk_; }
  uint64_t committed() const { return committed_; }
  // Why a rule ended the run; nothing if none did. A run that is resumed with a rule that is met
  // ends at once.
  const std::optional<std::string>& stop_reason() const { return stop_reason_; }

 private:
  uint64_t steps() const { return options_.sampling.steps; }
  bool last() const { return committed_ >= steps() || drain_.asked() || stop_reason_.has_value(); }
  absl::Status DrawOwed();
  absl::Status TrainOne(LearnerStep step);
  void Commit(LearnerStep step, const CollectedGroups& groups);
  absl::Status PublishIfDue();
  absl::Status CommitToBuffer(LearnerStep step, const CollectedGroups& groups,
                              const rl::StepResult& result);
  absl::Status FinishStep();
  double AddTimes();
  void ApplyStopRules();
  void LogUnfinished();
  absl::Status WriteCheckpoint();
  absl::Status WriteLastCheckpoint();
  absl::StatusOr<RunState> StateToSave(bool keep_all);

  const Options options_;
  const LoopParts parts_;
  uint64_t committed_;
  DrainRequest drain_;
  RunDisk disk_;
  const StepRules rules_;
  StepSampling sampling_;
  StepMeasure measure_;
  EvaluationSchedule evaluations_;
  CheckpointSchedule checkpoints_;
  UnscoredGuard unscored_;
  bool publication_owed_ = false;  // Weights were withheld.
  config::MetricSeries stop_values_;
  std::optional<std::string> stop_reason_;
  std::map<std::string, double> numbers_;  // Metrics of the last committed step.
};

}  // namespace oxbow::learner
