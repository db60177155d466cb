// SPDX-License-Identifier: Apache-2.0
// A learner rank above 0: takes groups into its own sink, trains its share of each step, and does
// what rank 0 commands until the command to stop. It passes a stop signal on to rank 0: the drain
// that rank 0 begins needs every rank.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "base/byte_budget.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "rpc/server.h"
#include "services/learner/checkpoint/checkpoint_writer.h"
#include "services/learner/coordinator/experience_sink_service.h"
#include "services/learner/ranks/rank_stream.h"
#include "services/learner/record/learner_metrics.h"
#include "services/learner/run_start.h"
#include "telemetry/metrics.h"

namespace oxbow::learner {

class MemberProcess {
 public:
  // All outlive it.
  struct Parts {
    const RunOptions& options;
    const RunSetup& setup;
    const LoadedPolicy& model;
    parallel::Ranks& ranks;
    rl::Trainer& trainer;
  };

  // Binds the sink, joins rank 0, and says where the sink is: to rank 0 and to the starter.
  static absl::StatusOr<std::unique_ptr<MemberProcess>> Start(const Parts& parts);

  // Runs until rank 0 says stop, or is gone. Ends as rank 0 does. Called once.
  absl::Status Run();

 private:
  MemberProcess(const Parts& parts, std::unique_ptr<telemetry::Metrics> exposer);
  absl::Status Join();
  absl::Status TrainOne(const v1::StepManifest& manifest);
  void SavePiece(uint64_t committed_steps);
  absl::StatusOr<rl::Group> BuildMember(LearnerStep step, const v1::StepManifest::Item& item,
                                        bool held);
  absl::StatusOr<rl::Group> BuildStored(v1::Group group, bool held);

  const Parts parts_;
  const std::unique_ptr<telemetry::Metrics> exposer_;
  LearnerMetrics metrics_;
  ByteBudget budget_;  // Outlives the groups, which hold some of it.
  HeldGroups groups_;
  std::map<uint64_t, std::string> heads_;  // Latents of replayed heads as they come, by group.
  absl::Notification joined_;              // The stream is there.
  // The writer reports by the stream, and so do results that come in.
  std::unique_ptr<RankStream> stream_;
  CheckpointWriter writer_;
  ExperienceSinkService sink_service_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace oxbow::learner
