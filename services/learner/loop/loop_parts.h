// SPDX-License-Identifier: Apache-2.0
// The objects that the learner's loop and its parts work with.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "core/rl/trainer.h"
#include "services/learner/checkpoint/checkpoint_manifest.h"
#include "services/learner/coordinator/coordinator.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/evaluation/picture_judge.h"
#include "services/learner/loop/score_watch.h"
#include "services/learner/plan/conditioning_cache.h"
#include "services/learner/plan/prompt_order.h"
#include "services/learner/plan/step_rule.h"
#include "services/learner/record/learner_metrics.h"
#include "services/learner/record/run_progress.h"
#include "services/learner/record/step_log.h"
#include "services/learner/replay/replay_link.h"
#include "telemetry/run_log.h"

namespace oxbow::learner {

// Whether a run was asked to stop, and since when. Thread-safe.
class DrainRequest {
 public:
  // The step in progress may take so long once the run was asked.
  static constexpr absl::Duration kGrace = absl::Seconds(10);

  // The first time counts.
  void Ask() {
    if (asked_.exchange(true)) return;
    end_ns_ = absl::ToInt64Nanoseconds(Clock::Steady().Now() + kGrace);
  }
  bool asked() const { return asked_; }
  bool Overdue(absl::Duration longer = absl::ZeroDuration()) const {
    return absl::ToInt64Nanoseconds(Clock::Steady().Now() - longer) >= end_ns_;
  }

 private:
  std::atomic<bool> asked_ = false;
  std::atomic<int64_t> end_ns_ = std::numeric_limits<int64_t>::max();  // Steady clock.
};

// All outlive the loop.
struct LoopParts {
  rl::Trainer& trainer;
  ConditioningCache& conditioning;
  PromptOrder& prompts;
  Coordinator& coordinator;
  GroupAssembler& assembler;
  ReplayLink* buffer;  // Null: the run has no replay buffer.
  StepLog& step_log;
  RunProgress& progress;
  LearnerMetrics& metrics;
  RangeWatch& ranges;
  telemetry::RunLog& log;
  // Tells the other ranks which groups the step trains on.
  std::function<void(LearnerStep, const StepGroups&)> announce;
  std::function<absl::StatusOr<bool>(PolicyVersion, LearnerStep)> publish;  // False: withheld.
  // Begins an evaluation of the present weights, or of those after so many steps, which the run was
  // resumed with.
  std::function<absl::Status(std::optional<uint64_t> owed)> begin_evaluation;
  std::function<absl::StatusOr<EvaluationResult>()> await_evaluation;
  std::function<void()> cancel_scoring;  // Ends a running evaluation. Thread-safe.
  // Waits until no checkpoint is being written. Returns what became of the last one.
  std::function<absl::Status()> await_checkpoint;
  // The same without waiting; nothing while one is being written.
  std::function<std::optional<absl::Status>()> checkpoint_ended;
  // Copies the tensors and begins to write a checkpoint, after await_checkpoint.
  std::function<absl::Status(RunState)> checkpoint;
  // Copies of checkpoints that failed so far; empty: none is made.
  std::function<uint64_t()> copies_failed;
  // The log has the first line of this start, or one with an evaluation.
  std::function<void()> logged = [] {};
};

}  // namespace oxbow::learner
