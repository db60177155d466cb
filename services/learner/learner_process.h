// SPDX-License-Identifier: Apache-2.0
// The parts of a running learner. They are made in the order of their dependencies and destroyed in
// the reverse order.
//
// Make* and Connect* are called once each, in the order of declaration; then Run.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/parallel/ranks.h"
#include "io/report/report.h"
#include "rpc/server.h"
#include "services/learner/checkpoint/checkpoint_copier.h"
#include "services/learner/checkpoint/checkpoint_writer.h"
#include "services/learner/checkpoint/checkpointing.h"
#include "services/learner/coordinator/coordinator_service.h"
#include "services/learner/coordinator/experience_sink_service.h"
#include "services/learner/evaluation/evaluation.h"
#include "services/learner/loop/score_watch.h"
#include "services/learner/publish/publisher.h"
#include "services/learner/ranks/rank_leader.h"
#include "services/learner/record/live_report.h"
#include "services/learner/run_options.h"
#include "services/learner/run_setup.h"
#include "services/reward/reward_client.h"
#include "services/weights/weights_metrics.h"
#include "telemetry/metrics.h"

namespace oxbow::learner {

class LearnerProcess {
 public:
  LearnerProcess(const RunOptions& options, RunSetup setup);

  // Counts this start and, if the run resumes, reads the checkpoint.
  absl::Status MakeStart();
  // Makes policy, trainer and prompts in the state of the checkpoint.
  absl::Status MakeTrainer();
  // Makes metrics and logs, and the client of the reward servers.
  absl::Status ConnectPeers();
  // Makes what assigns and receives work: coordinator, sink, replay buffer. kInvalidArgument if the
  // buffer belongs to another run.
  absl::Status MakeDesk();
  // Makes publication, evaluation, and the loop that drives everything.
  absl::Status MakeLoop();
  // Binds the services and announces their addresses to workers and to the parent process.
  absl::Status Serve();

  // Checks the rewards, runs the loop until it is done or somebody asked it to end, writes the
  // final weights, and releases the workers. An end before the last step is kExitStopped or
  // kExitDrained (base/exit_code.h).
  absl::Status Run();

  // Records that the run has failed, for people. A start that was refused is no end of the run.
  void WriteFailure(const absl::Status& why) const;

 private:
  absl::Status ReadCheckpoint();
  absl::Status SettleIdentity();
  absl::Status CheckSteps() const;
  absl::Status CheckModel();
  absl::Status TakeStartWeights();
  void MakeEvaluation(weights::ProbeShape probe_shape);
  absl::Status BeginEvaluation(std::optional<uint64_t> owed);
  absl::StatusOr<EvaluationResult> AwaitEvaluation();
  absl::Status RestoreTrainer();
  absl::Status MakeCheckpointWriter();
  absl::Status ReadStopValues(LearnerLoop::Options& options) const;
  LoopParts PartsOfLoop();
  absl::Status BeginCheckpoint(RunState state);
  absl::Status WriteOwnEndpoints();
  absl::Status WriteReport(bool live);
  void Drain(const std::string& by);
  absl::Status EarlyEnd() const;
  absl::Status WriteEnd(const absl::Status& early, const std::string& uncopied = "") const;
  void EndWhileLoading(const std::string& by) const;
  uint64_t committed() const;
  void NoticeDamage();
  void LogCutPrompts() const;
  void WriteLastReport();
  // Why the last checkpoint was not copied; empty: it was, or nobody asked for that.
  std::string AwaitCopies();
  absl::Status TryGrey(std::vector<int64_t> shape);
  absl::Status TryRewards();
  void PinRewards();

  const RunOptions& options_;
  RunSetup setup_;
  const Checkpointing checkpointing_;
  std::optional<Checkpoint> resumed_;
  RunState from_;
  bool started_ = false;                                  // The checks of MakeStart have passed.
  std::map<std::string, std::string> reward_identities_;  // By name.
  // io::ModelDigests, made while the model is loaded; then what they are.
  std::future<absl::StatusOr<std::map<std::string, std::string>>> model_digests_;
  std::map<std::string, std::string> model_sha256_;
  v1::RegisterResponse registration_;
  Epoch epoch_;
  std::string run_uid_;

  std::unique_ptr<model::Policy> policy_;
  std::unique_ptr<parallel::Ranks> ranks_;
  std::unique_ptr<rl::Trainer> trainer_;
  std::unique_ptr<ConditioningCache> conditioning_;
  std::unique_ptr<PromptOrder> prompts_;

  std::unique_ptr<telemetry::Metrics> exposer_;
  std::unique_ptr<LearnerMetrics> metrics_;
  std::unique_ptr<weights::PublishMetrics> publish_metrics_;
  std::unique_ptr<reward::RewardClient> rewards_;
  std::unique_ptr<telemetry::RunLog> log_;
  std::optional<StepLog> step_log_;
  std::unique_ptr<RunProgress> progress_;
  RangeWatch ranges_;  // Empty until the rewards have said what they are.

  std::unique_ptr<ByteBudget> budget_;  // Before the assembler, whose groups hold parts of it.
  GroupAssembler assembler_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<ReplayLink> buffer_;  // Null: the run does not replay.

  std::unique_ptr<weights::WeightChannelService> channel_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<PictureJudge> judge_;
  std::unique_ptr<Evaluation> evaluation_;  // Null: the run does not evaluate.
  std::unique_ptr<LearnerLoop> loop_;

  std::unique_ptr<CoordinatorService> coordinator_service_;
  std::unique_ptr<ExperienceSinkService> sink_service_;
  std::unique_ptr<RankLeader> leader_;
  std::unique_ptr<rpc::Server> server_;

  mutable absl::Mutex drain_mutex_;
  std::string drained_by_ ABSL_GUARDED_BY(drain_mutex_);  // The first that asked.

  // Last: their threads use what is above.
  std::unique_ptr<CheckpointCopier> copier_;  // Null: no second place.
  std::unique_ptr<CheckpointWriter> writer_;
  io::RunReading reading_{options_.directory};  // Used by report_'s thread alone.
  std::unique_ptr<LiveReport> report_;
};

}  // namespace oxbow::learner
