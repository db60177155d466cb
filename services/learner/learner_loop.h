// SPDX-License-Identifier: Apache-2.0
// The learner's loop over steps. Its thread is the only one that uses torch.
//
//   plan k .. k+S -> [log, evaluate and checkpoint step k-1 while workers sample] -> wait for step
//   k
//   -> freeze its manifest -> train -> publish -> offer and advance the buffer -> k+1
//
// With S = 0 step k is planned after the buffer has processed the commit of k-1, so that a run is a
// function of its seed. Evaluation and checkpoints use the weights after k-1, which do not change
// until step k trains; they run while workers sample.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/patience.h"
#include "config/stop_rules.h"
#include "core/flow/window.h"
#include "core/rl/trainer.h"
#include "oxbow/v1/config.pb.h"
#include "services/buffer/replay_client.h"
#include "services/learner/base_pictures.h"
#include "services/learner/checkpoint_store.h"
#include "services/learner/conditioning_cache.h"
#include "services/learner/coordinator/coordinator.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/coordinator/prompt_choice.h"
#include "services/learner/coordinator/prompt_order.h"
#include "services/learner/evaluation.h"
#include "services/learner/learner_metrics.h"
#include "services/learner/range_watch.h"
#include "services/learner/replay/replay_link.h"
#include "services/learner/replay/replay_offer.h"
#include "services/learner/replay/stored_successes.h"
#include "services/learner/rollout_numbers.h"
#include "services/learner/run_progress.h"
#include "services/learner/step_adaptation.h"
#include "services/learner/step_log.h"
#include "services/learner/unscored_guard.h"
#include "telemetry/run_log.h"

namespace oxbow::learner {

// Work of evaluations is in learner_loop_evaluation.cc, what is written to the run's disk
// in learner_loop_checkpoint.cc.
class LearnerLoop {
 public:
  struct Options {
    Epoch epoch;
    std::string run_id;               // Id of this start; names the traces of its steps.
    std::filesystem::path directory;  // The run's.
    LearnerStep first_step;           // Number of steps committed before.
    uint64_t steps = 0;               // Number of steps of the whole run.
    uint32_t groups = 0;              // U
    uint32_t dynamic_sampling_max =
        0;                           // Dynamic sampling: extra groups for those with equal rewards.
    uint32_t ranks = 1;              // Ranks of the learner; this one is rank 0.
    bool replays = false;            // The best trajectories are offered to the replay buffer.
    StoredSuccesses::Options reuse;  // Rules for what of the buffer joins a step.
    replay::ReuseState reused;       // The run's knowledge of fresh groups.
    PromptChoice::Options choice;
    rl::SuccessRecord known;  // The run's knowledge of its prompts.
    uint64_t staleness_max = 0;
    uint32_t publish_every = 1;
    uint32_t eval_every = 0;
    // Evaluate before publishing, because the reward floor needs the result; else while workers
    // sample.
    bool eval_before_publish = false;
    // Training goes on while workers draw an evaluation, for one step at most. Where nothing but
    // its numbers depends on it.
    bool eval_beside = false;
    uint32_t checkpoint_every = 0;
    uint32_t checkpoints_kept = 2;
    std::string best_metric;            // Each evaluation that is the best by it has a checkpoint.
    std::optional<double> best_before;  // The best of checkpoints made before.
    // Evaluations that an earlier start owes: the weights after these many steps.
    std::set<uint64_t> owed;
    config::StopRuleList stop_if;
    config::MetricSeries stop_values;  // Values of their metrics before the run was resumed.
    double wall_seconds_before = 0;    // Time of the run before it was resumed.
    OfferRules offers;
    uint64_t run_seed = 0;
    std::optional<flow::WindowPlan> window;  // None: no step is stochastic.
    uint32_t failures_max = 0;               // Regenerations in a row that may fail; 0: any number.
    std::optional<rl::BatchAdaptation> adaptation;  // None: a step trains on all its groups.
    SamplingForm form;                              // Its groups.
    v1::RewardConfig reward;
    double adamw_epsilon = 0;  // A warning says when it exceeds the gradients.
    int rows_per_step = 1;     // Network rows per sampling step; guidance takes two.
    absl::Duration drain_grace = absl::Seconds(10);  // For an update, once a drain is requested.
    absl::Duration patience = absl::Minutes(30);     // With a disk that is full or away.
  };

  // The objects that the loop works with; all outlive it.
  struct Parts {
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
    std::function<void(LearnerStep, const std::vector<ReceivedGroup>&,
                       const std::vector<PlannedGroup>&)>
        announce;
    std::function<absl::StatusOr<bool>(PolicyVersion, LearnerStep)> publish;  // False: withheld.
    // Begins an evaluation of the present weights, or of those after so many steps, which the run
    // was resumed with.
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
    std::function<void()> evaluated = [] {};
  };

  LearnerLoop(Options options, Parts parts);

  // Runs to the last step, until a rule of `stop_if` is met, or until a drain request. Returns OK
  // when the run is complete, stopped or drained; then a checkpoint of the last step is whole on
  // disk. kFailedPrecondition, with a checkpoint, if nearly no image can be scored.
  absl::Status Run();

  // Ends the run, after the step in progress if all its groups have arrived and its update ends
  // within `drain_grace`; else the step is left as if it had not begun. The checkpoint of the last
  // committed step comes before anything else. A running evaluation ends at once, and none begins:
  // the checkpoint says that the run owes it. Thread-safe.
  void RequestDrain();

  // Calls `write` until it has written or patience with the disk is over. `what` is a label of the
  // metric of failed writes.
  absl::Status Persist(const std::string& what, const std::function<absl::Status()>& write);

  uint64_t committed() const { return committed_; }
  // Why a rule ended the run; nothing if none did. A run that is resumed with a rule that is met
  // ends at once.
  const std::optional<std::string>& stop_reason() const { return stop_reason_; }

 private:
  absl::Status PlanAhead();
  absl::Status PlanOne(LearnerStep step);
  std::vector<int> WindowOf(LearnerStep step) const;
  absl::Status FinishStep();
  void LogUnfinished();
  absl::Status EncodeAhead();
  absl::Status TrainOne(LearnerStep step);
  // The groups that a step trains on; equal indices belong together.
  struct StepGroups {
    std::vector<ReceivedGroup> received;
    std::vector<PlannedGroup> planned;
    uint32_t refills = 0;  // Extra groups made in place of groups without a signal.
    std::vector<buffer::Rescored> rescored;     // Findings of the replaced ones on their heads,
    std::vector<rl::GroupOutcome> outcomes;     // and on their prompts.
    StoredSuccesses::FreshSums replaced_fresh;  // Rewards of the replaced ones.
    Sampled replaced;                           // The cost of the replaced ones.
    std::map<size_t, uint64_t> lost;            // Samples whose head was lost, by group.
    uint64_t samples_lost() const;
  };
  absl::StatusOr<StepGroups> Collect(LearnerStep step);
  void TakeLatentsOfHeads(LearnerStep step, StepGroups& groups);
  absl::StatusOr<std::vector<bool>> SignalOf(const StepGroups& groups);
  absl::StatusOr<bool> RefillOnce(LearnerStep step, StepGroups& groups, std::set<uint64_t>& taken);
  absl::StatusOr<std::vector<ReceivedGroup>> Await(LearnerStep step, size_t count);
  absl::Status Encode(std::vector<PlannedGroup>& groups);
  absl::Status PublishIfDue();
  bool EvaluationWanted() const;
  bool EvaluationDue() const;
  absl::StatusOr<std::vector<rl::Group>> Build(const std::vector<ReceivedGroup>& received,
                                               const std::vector<PlannedGroup>& planned);
  absl::Status Evaluate();
  absl::Status TakeEvaluation(uint64_t committed, std::map<std::string, double>& numbers);
  absl::Status DrawOwed();
  bool BeginEvaluation(uint64_t committed, std::optional<uint64_t> owed,
                       std::map<std::string, double>& numbers);
  absl::Status FinishBeside();
  void EvaluationFailed(uint64_t committed, const absl::Status& why,
                        std::map<std::string, double>& numbers);
  std::vector<std::string> WaitingForEvaluation() const;
  void NoteUnscored();
  void Owe(uint64_t committed);
  bool EvaluatedBest();
  void ApplyStopRules();
  void CommitToBuffer(LearnerStep step, const StepGroups& groups, const rl::StepResult& result);
  void Measure(LearnerStep step, const StepGroups& groups);
  void CommitToChoice(LearnerStep step, StepGroups& groups);
  void WarnOfLostSteps(LearnerStep step);
  // learner_loop_checkpoint.cc
  void NoteUnwritten(const std::string& what, const absl::Status& why, absl::Duration pause);
  absl::Status Pause(absl::Duration pause);
  absl::Status StopUnwritten(const absl::Status& why) const;
  absl::Status PersistUnlessDrained(const std::string& what,
                                    const std::function<absl::Status()>& write);
  absl::Status LogStep(uint64_t committed, double wall_seconds,
                       const std::map<std::string, double>& numbers);
  bool CheckpointDue() const;
  absl::Status LookAtCheckpoint();
  absl::Status JudgeCheckpoint(const absl::Status& status);
  absl::Status WriteCheckpoint();
  absl::Status WriteLastCheckpoint();
  bool last() const { return committed_ >= options_.steps || drain_ || stop_reason_.has_value(); }
  bool DrainOverdue(absl::Duration longer = absl::ZeroDuration()) const;

  const Options options_;
  const Parts parts_;
  std::atomic<bool> drain_ = false;
  std::atomic<int64_t> drain_end_ns_ = std::numeric_limits<int64_t>::max();  // Steady clock.
  StoredSuccesses reuse_;
  PromptChoice choice_;
  BasePictures base_;
  std::optional<StepAdaptation> adaptation_;
  UnscoredGuard unscored_;
  uint64_t committed_;
  uint64_t planned_;
  uint64_t checkpointed_;                // Steps of the checkpoint that was begun last.
  bool judged_ = true;                   // It was seen what became of that one.
  Patience patience_;                    // With checkpoints that cannot be written.
  std::optional<absl::Duration> again_;  // When to try again; none: the last one has not failed.
  bool epsilon_warned_ = false;
  bool publication_owed_ = false;      // Weights were withheld.
  std::optional<uint64_t> evaluated_;  // Committed steps at the last evaluation.
  std::set<uint64_t> owed_;            // Those that a stop cut off.
  // The line of a step whose evaluation is still under way.
  struct WaitingLine {
    uint64_t committed = 0;
    double wall_seconds = 0;
    std::map<std::string, double> numbers;
  };
  std::optional<WaitingLine> beside_;
  // Numbers of such an evaluation that are logged, and that no gauge and no status has yet.
  std::map<std::string, double> untold_;
  bool logged_ = false;                       // Whether this start has logged a line.
  std::map<std::string, double> evaluation_;  // Its numbers; `eval/failed` alone if it failed.
  std::string unscored_reason_;               // The last that was noted.
  std::optional<double> best_;                // The best of the checkpoints' evaluations.
  std::optional<double> best_begun_;          // The same without those after the last begun.
  std::optional<double> best_whole_;          // The same of those that are whole.
  config::MetricSeries stop_values_;
  std::optional<std::string> stop_reason_;
  std::map<uint64_t, PromptPosition> positions_;  // Prompt positions before each planned step.
  std::map<std::string, double> numbers_;         // Metrics of the last committed step.
};

}  // namespace oxbow::learner
