// SPDX-License-Identifier: Apache-2.0
// Rank 0 as it serves: the loop over steps, and the services by which workers and other ranks reach
// it. These two call each other, so they are one stage, the last one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "rpc/server.h"
#include "services/learner/coordinator/coordinator_service.h"
#include "services/learner/coordinator/experience_sink_service.h"
#include "services/learner/learner_stages.h"
#include "services/learner/loop/learner_loop.h"
#include "services/learner/loop/score_watch.h"
#include "services/learner/ranks/rank_leader.h"

namespace oxbow::learner {

class Serving {
 public:
  // Binds the services. Nobody knows of them before Run.
  static absl::StatusOr<std::unique_ptr<Serving>> Start(const Stages& stages);

  // Meets the other ranks, announces the services to workers and to the parent process, checks the
  // rewards, runs the loop until it is done or somebody asked it to end, writes the final weights,
  // and releases the workers. An end before the last step is kExitStopped or kExitDrained
  // (base/exit_code.h).
  absl::Status Run();

  uint64_t committed() const { return loop_.committed(); }

 private:
  Serving(const Stages& stages, LearnerLoop::Options loop);
  LoopParts PartsOfLoop();
  absl::Status BeginEvaluation(std::optional<uint64_t> owed);
  absl::StatusOr<EvaluationResult> AwaitEvaluation();
  void CancelScoring();
  absl::Status Announce();
  absl::Status PinRewards();
  void Drain(const std::string& by);
  absl::Status EarlyEnd() const;
  absl::Status WriteResult(const absl::Status& early);
  // `uncopied`: why the last checkpoint was not copied.
  absl::Status WriteEnd(const absl::Status& early, const std::string& uncopied = "") const;

  const Stages stages_;
  v1::RegisterResponse registration_;
  std::map<std::string, std::string> reward_identities_;  // By name.
  RangeWatch ranges_;  // Empty until the rewards have said what they are.
  mutable absl::Mutex mutex_;
  std::string drained_by_ ABSL_GUARDED_BY(mutex_);  // The first that asked.
  LearnerLoop loop_;
  CoordinatorService coordinator_service_;
  ExperienceSinkService sink_service_;
  RankLeader leader_;
  std::unique_ptr<rpc::Server> server_;
  RunCheckpoints checkpoints_;  // Last: its threads use what is above.
};

}  // namespace oxbow::learner
