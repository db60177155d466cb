// SPDX-License-Identifier: Apache-2.0
// The parts of rank 0 between its start (run_start.h) and its services (serving.h). Each is made
// from those before it, which outlive it.
//
//   RunStart -> LoadedPolicy -> Ranks -> Trainer -> Peers -> Planning -> Publication -> Serving
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "services/learner/checkpoint/checkpoint_writer.h"
#include "services/learner/coordinator/coordinator.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/evaluation/evaluation.h"
#include "services/learner/plan/prompt_order.h"
#include "services/learner/publish/publisher.h"
#include "services/learner/ranks/rank_leader.h"
#include "services/learner/record/live_report.h"
#include "services/learner/record/run_progress.h"
#include "services/learner/record/step_log.h"
#include "services/learner/replay/replay_link.h"
#include "services/learner/run_start.h"
#include "services/reward/reward_client.h"
#include "telemetry/metrics.h"
#include "telemetry/run_log.h"

namespace oxbow::learner {

// The run's watchers, its logs and its reward servers.
struct Peers {
  std::unique_ptr<telemetry::Metrics> exposer;
  std::unique_ptr<LearnerMetrics> metrics;
  std::unique_ptr<weights::PublishMetrics> publish_metrics;
  std::unique_ptr<reward::RewardClient> rewards;
  std::unique_ptr<telemetry::RunLog> log;
  std::optional<StepLog> step_log;
  std::unique_ptr<RunProgress> progress;
  std::unique_ptr<LiveReport> report;
};
absl::StatusOr<Peers> MakePeers(const RunStart& start);

// Assigns work and receives it.
struct Planning {
  std::unique_ptr<PromptOrder> prompts;
  std::unique_ptr<ByteBudget> budget;  // Groups in the assembler hold parts of it.
  std::unique_ptr<GroupAssembler> assembler;
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<ReplayLink> buffer;  // Null: the run does not replay.
};
// kInvalidArgument if the replay buffer belongs to another run.
absl::StatusOr<Planning> MakePlanning(const RunStart& start, const Peers& peers);

// Shows the policy to workers: published, and evaluated.
struct Publication {
  std::unique_ptr<weights::WeightChannelService> channel;
  std::unique_ptr<Publisher> publisher;
  std::unique_ptr<PictureJudge> judge;
  std::unique_ptr<Evaluation> evaluation;  // Null, as is the judge: the run does not evaluate.
};
absl::StatusOr<Publication> MakePublication(const RunStart& start, const LoadedPolicy& model,
                                            const Peers& peers, const Planning& planning);

// All of these, for those that come last. They outlive them.
struct Stages {
  const RunStart& start;
  const LoadedPolicy& model;
  parallel::Ranks& ranks;
  rl::Trainer& trainer;
  Peers& peers;
  const Planning& planning;
  const Publication& publication;
};

// The checkpoints of a run: written and copied while training goes on. Owned by the loop's thread.
class RunCheckpoints {
 public:
  // `leader` outlives it.
  RunCheckpoints(const Stages& stages, RankLeader& leader);

  // Copies the tensors and begins to write them, after Finish.
  absl::Status Begin(RunState state);
  // As CheckpointWriter.
  absl::Status Finish() { return writer_.Finish(); }
  std::optional<absl::Status> Ended() const { return writer_.Ended(); }

  uint64_t copies_failed() const { return copier_ == nullptr ? 0 : copier_->failures(); }
  // Waits for the copy of the last checkpoint, that of `step`: long if the run is `complete`, for
  // it is worth more than any other, but not for ever. Returns why it was not copied; empty: it
  // was, or nobody asked for that.
  std::string AwaitCopies(uint64_t step, bool complete);

 private:
  const Stages stages_;
  RankLeader& leader_;
  std::unique_ptr<CheckpointCopier> copier_;  // Null: no second place.
  CheckpointWriter writer_;                   // Its thread uses the copier.
};

}  // namespace oxbow::learner
