// SPDX-License-Identifier: Apache-2.0
// A learner rank above 0: takes groups into its own sink, trains its share of each step, and does
// what rank 0 commands until the command to stop. It passes a stop signal on to rank 0: the drain
// that rank 0 begins needs every rank.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "base/byte_budget.h"
#include "core/model/policy.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "rpc/server.h"
#include "services/learner/checkpoint/checkpoint_writer.h"
#include "services/learner/coordinator/experience_sink_service.h"
#include "services/learner/plan/conditioning_cache.h"
#include "services/learner/ranks/held_groups.h"
#include "services/learner/ranks/rank_stream.h"
#include "services/learner/record/learner_metrics.h"
#include "services/learner/run_options.h"
#include "services/learner/run_setup.h"
#include "telemetry/metrics.h"

namespace oxbow::learner {

class MemberProcess {
 public:
  MemberProcess(const RunOptions& options, RunSetup setup);

  // Meets the other ranks and takes rank 0's weights and optimiser.
  absl::Status MakeTrainer();
  // Binds the sink, joins rank 0, and says where the sink is: to rank 0 and to the starter.
  absl::Status Serve();
  // Runs until rank 0 says stop, or is gone. Ends as rank 0 does.
  absl::Status Run();

 private:
  absl::Status TrainOne(const v1::StepManifest& manifest);
  void SavePiece(uint64_t committed_steps);
  absl::StatusOr<rl::Group> BuildMember(LearnerStep step, const v1::StepManifest::Item& item,
                                        bool held);

  const RunOptions& options_;
  RunSetup setup_;
  std::unique_ptr<model::Policy> policy_;
  std::unique_ptr<parallel::Ranks> ranks_;
  std::unique_ptr<rl::Trainer> trainer_;
  std::unique_ptr<ConditioningCache> conditioning_;
  std::unique_ptr<telemetry::Metrics> exposer_;
  std::unique_ptr<LearnerMetrics> metrics_;
  std::unique_ptr<ByteBudget> budget_;  // Outlives the groups, which hold some of it.
  std::unique_ptr<HeldGroups> groups_;
  std::unique_ptr<RankStream> stream_;
  absl::Notification joined_;  // The stream is there.
  std::unique_ptr<ExperienceSinkService> sink_service_;
  std::unique_ptr<rpc::Server> server_;
  std::map<uint64_t, std::string> heads_;     // Latents of replayed heads as they come, by group.
  std::unique_ptr<CheckpointWriter> writer_;  // Last: its thread uses what is above.
};

}  // namespace oxbow::learner
