// SPDX-License-Identifier: Apache-2.0
// A learner for tests of the worker: the real weight channel with a scripted coordinator, sink and
// scorer, all on one server. Thread-safe.
#pragma once

#include <prometheus/registry.h>

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/ids.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/protocol_revision.h"
#include "rpc/server.h"
#include "services/weights/weight_channel_service.h"

namespace oxbow::rollout {

class FakeLearner {
 public:
  struct Script {
    Epoch epoch{1};
    PolicyVersion version{5};
    v1::OnRewardFailure on_failure = v1::ON_REWARD_FAILURE_FAIL;
    v1::InsertOutcome outcome = v1::INSERT_OUTCOME_ACCEPTED;
    int unscored = -1;            // Number of the item that gets no score, in every group.
    bool drops_unscored = false;  // In every lease.
    bool wrong_probe = false;
    uint32_t protocol = kProtocolRevision;
    uint64_t credit_piece = 1 << 20;  // Bytes granted at a time.
    std::string listen = "127.0.0.1:0";
    uint32_t group_size = 3;
    int leases = 0;            // For groups 100, 101, ...
    uint64_t version_min = 0;  // Required by every lease.
    bool hangs_up = false;     // Ends the stream of a worker that wants no more leases.
    v1::CudaGraphs cuda_graphs = v1::CUDA_GRAPHS_AUTO;
    bool has_buffer = false;            // A replay buffer, which nobody calls.
    bool run_complete = false;          // Says so to every worker.
    int refusals = 0;                   // So many Inserts are refused, the sink being busy or away.
    bool rewards_away = false;          // Until BringRewards.
    std::string reward = "brightness";  // That the reward server has.
    bool renews = true;                 // False: every lease has expired when it is renewed.
    bool one_prompt = false;            // All leases have the same conditioning.
    bool forges_conditioning = false;   // It serves other bytes than leases name.
    bool conditioning_away = false;     // Where workers ask for it nobody answers.
  };
  // The worker's calls, as the learner saw them.
  struct Seen {
    std::vector<v1::Group> groups;  // With latent bytes.
    std::vector<v1::WorkRequest::Finished> failures;
    std::vector<v1::ReportAppliedRequest> reports;
    std::vector<v1::WorkRequest::Credit> credits;
    int registrations = 0;
    int scoring = 0;
    int renewals = 0;
    int refused = 0;                          // Inserts.
    std::vector<uint64_t> renewing;           // Lease ids in the last renewal.
    std::set<std::vector<uint64_t>> renewed;  // Lease ids of each renewal so far.
    std::string waiting_for;                  // From the last renewal.
    bool goodbye = false;
  };

  explicit FakeLearner(Script script);
  ~FakeLearner();

  const std::string& endpoint() const { return server_->endpoint(); }
  void HoldScores(bool hold);  // Score waits while held.
  void BringRewards();

  // Waits until `enough` is true or the deadline passes; returns what was seen.
  Seen Await(const std::function<bool(const Seen&)>& enough);

 private:
  class Coordinator;
  class Sink;
  class Scorer;
  v1::RegisterResponse Registration() const;
  void Publish();

  const Script script_;
  prometheus::Registry registry_;
  weights::PublishMetrics metrics_{registry_};
  absl::Mutex mutex_;
  bool hold_scores_ ABSL_GUARDED_BY(mutex_) = false;
  bool rewards_away_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<v1::Lease> leases_ ABSL_GUARDED_BY(mutex_);
  Seen seen_ ABSL_GUARDED_BY(mutex_);
  weights::ContentStore content_{uint64_t{1} << 20};
  std::unique_ptr<weights::WeightChannelService> weights_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Sink> sink_;
  std::unique_ptr<Scorer> scorer_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace oxbow::rollout
