// SPDX-License-Identifier: Apache-2.0
// Rank 0's side of LearnerRanks: knows the other ranks, tells them what a step trains on, and
// notices when one is gone.
//
// If a rank closes its stream before it was told to stop, or is silent for the rank timeout, the
// whole learner ends: the ranks no longer agree on what comes next, and start again together.
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "oxbow/v1/coordinator.pb.h"
#include "oxbow/v1/learner_ranks.grpc.pb.h"
#include "rpc/server.h"
#include "rpc/stream.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/plan/step_rule.h"

namespace oxbow::learner {

class RankLeader final : public v1::LearnerRanks::Service, public rpc::HasStreams {
 public:
  using JoinStream = rpc::Stream<v1::RankReport, v1::RankCommand>;
  using AcceptStream = rpc::Stream<v1::InsertRequest, v1::InsertResponse>;

  struct Options {
    int ranks = 1;
    absl::Duration timeout = absl::Seconds(60);
    uint64_t group_bytes_max = 0;  // Latent bytes of one group.
    int threads = 4;               // For its streams (rpc/stream_runner.h).
    // Called when another rank was asked to stop, with who asked it.
    std::function<void(const std::string& by)> drain = [](const std::string&) {};
  };
  // `lost` is called once, from some thread, with why the learner cannot go on.
  RankLeader(Options options, const Clock& clock, ResultReceiver& results,
             std::function<void(const absl::Status&)> lost);
  ~RankLeader() override;

  // Waits until all ranks have joined. kDeadlineExceeded names those that have not.
  absl::Status AwaitAll(absl::Duration timeout);

  // Sinks of the ranks above 0 that have joined, by rank.
  std::vector<std::string> sinks() const;
  void FillStatus(v1::StatusResponse& status) const;

  // Begins a step on every other rank. `groups` by group id.
  void Announce(LearnerStep step, const StepGroups& groups);

  // Asks every other rank to write its piece of the optimiser for the checkpoint of these steps.
  void AnnounceSave(uint64_t committed_steps);
  // Waits for the answers of all: the files they have written. An error names the rank that could
  // not, or says that one is lost.
  absl::StatusOr<std::map<std::string, FileDigest>> AwaitSaved();

  // Tells every rank that the run is over, and how, and waits up to `grace` until they have closed
  // their streams.
  void Stop(absl::Duration grace, const absl::Status& end = absl::OkStatus());

  rpc::StreamRunner& streams() override { return runner_; }

  // Serve one call. Public for callers without a network.
  rpc::Handler Join(JoinStream& stream);
  rpc::Handler Accept(AcceptStream& stream);

 private:
  struct Member {
    v1::RankReport::Hello place;
    absl::Duration seen;
    JoinStream* stream = nullptr;  // Null: it has left.
  };

  absl::Status Admit(const v1::RankReport& report, JoinStream& stream);
  void Lose(uint32_t rank, const std::string& why);
  void SendToAll(const v1::RankCommand& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::InsertResponse Decide(v1::Group group);

  const Options options_;
  const Clock& clock_;
  ResultReceiver& results_;
  const std::function<void(const absl::Status&)> lost_;

  mutable absl::Mutex mutex_;
  std::map<uint32_t, Member> members_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool lost_one_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);  // Why a rank may not join.
  uint64_t saving_ ABSL_GUARDED_BY(mutex_) = 0;   // Steps of the checkpoint last announced.
  std::map<uint32_t, v1::RankReport::Saved> saved_ ABSL_GUARDED_BY(mutex_);  // By rank.

  absl::Notification ended_;
  std::thread ticker_;        // Tells the other ranks that this one is alive.
  rpc::StreamRunner runner_;  // Last: it waits for the streams.
};

}  // namespace oxbow::learner
