// SPDX-License-Identifier: Apache-2.0
// The Reward RPCs over a panel of scorers: converts messages, hands items to the scorers' queues,
// counts.
//
// A reward whose queue is full is refused with RESOURCE_EXHAUSTED: its client asks another replica,
// or again after the pause that the call's trailing metadata say (rpc/retry.h). A stream that
// waits costs no thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/health_service.h"
#include "rpc/server.h"
#include "rpc/stream.h"
#include "services/reward/reward_metrics.h"
#include "services/reward/score_assembly.h"
#include "services/reward/scorer_panel.h"
#include "services/reward/scorer_queue.h"

namespace oxbow::reward {

// Whether each reward of a server serves, as grpc.health.v1 names it: "oxbow.v1.Reward/NAME".
//
// None serves while the server loads. A reward whose last kFailuresMax batches gave no score at
// all, for reasons of its own, is broken until it gives one. That of the server as a whole does not
// depend on it: its other rewards may be fine.
//
// Thread-safe.
class RewardHealth {
 public:
  static constexpr int kFailuresMax = 3;

  explicit RewardHealth(const std::vector<std::string>& rewards);

  // All rewards are loaded.
  void Ready();
  // Takes note of a batch: how many of its items have a score, and how many failed through no fault
  // of their caller. Returns whether the reward serves.
  bool BatchScored(const std::string& reward, size_t scored, size_t failed);

  // "" and "oxbow.v1.Reward" are the server as a whole. Nothing for a name that it does not have.
  std::optional<bool> Serves(std::string_view service) const;

 private:
  mutable absl::Mutex mutex_;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  // Batches without a score, one after the other.
  std::map<std::string, int, std::less<>> failures_ ABSL_GUARDED_BY(mutex_);
};

class RewardService final : public v1::Reward::Service,
                            public rpc::HasStreams,
                            public rpc::HasHealth {
 public:
  using ScoreStream = rpc::Stream<v1::ScoreRequest, v1::ScoreResponse>;
  struct Options {
    uint32_t batch_max = 64;  // Items per ScoreRequest; a larger request ends the call.
    uint64_t medium_bytes_max = uint64_t{256} << 20;  // Pixels of one medium, decoded.
    uint64_t media_bytes_max = uint64_t{2} << 30;     // Media of all calls together.
    ScorerQueue::Options queue;
    // Called for each batch of a scorer that computes no more in this process (ScorerQueue::Batch).
    std::function<void(const absl::Status&)> broken = [](const absl::Status&) {};
    rpc::StreamRunner::Options streams = {.threads = 2};
  };

  // Loads `rewards`: until Open all calls are UNAVAILABLE, and health is NOT_SERVING. `clock`
  // outlives the service.
  RewardService(Options options, const std::vector<std::string>& rewards, const Clock& clock);
  // Open from the start.
  RewardService(Options options, const ScorerPanel& panel, RewardMetrics& metrics,
                const Clock& clock);
  ~RewardService() override;

  // Serves these scorers from now on. Once. Both outlive the service.
  void Open(const ScorerPanel& panel, RewardMetrics& metrics);

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;

  // The queue of one of the panel's scorers. Thread-safe.
  ScorerQueue& QueueOf(const Scorer& scorer) { return *queues_.at(&scorer); }

  rpc::StreamRunner& streams() override { return *runner_; }
  std::optional<bool> Serves(std::string_view name) const override { return health_.Serves(name); }

  // Serves one call. Public for callers without a network. INVALID_ARGUMENT for a batch over
  // batch_max, a medium that is too large and pieces that do not fit, NOT_FOUND for a reward that
  // this server does not have, RESOURCE_EXHAUSTED for a batch too many: the call ends. An error of
  // one item is that item's status; the call continues.
  rpc::Handler Score(ScoreStream& stream);

 private:
  // A request that is scored: its items, and what the scorers say of them.
  struct Work;
  // The state of one call.
  struct Call {
    ScoreStream& stream;
    v1::ScoreRequest request;           // The first of its batch.
    v1::ScoreRequest pieces = {};       // A further one.
    std::vector<Scorer*> scorers = {};  // That the batch wants.
    absl::Duration since = {};          // When the batch began.
  };

  absl::StatusOr<ScoreAssembly> Begin(Call& call);
  absl::StatusOr<std::shared_ptr<Work>> Start(Call& call, ScoreAssembly assembly);
  absl::Status Queue(const std::shared_ptr<Work>& work, size_t scorer);
  void Answer(Call& call, Work& work);
  void AddOutcome(const std::string& reward, const absl::StatusOr<reward::Score>& score,
                  v1::ScoreResponse& response);
  absl::Status Ended(absl::Duration start, const absl::Status& status);

  const Options options_;
  const Clock& clock_;
  RewardHealth health_;
  std::atomic<bool> open_ = false;  // Set after the two that it stands for.
  const ScorerPanel* panel_ = nullptr;
  RewardMetrics* metrics_ = nullptr;
  ByteBudget room_;  // Outlives the queues, and so the work in them.
  std::map<const Scorer*, std::unique_ptr<ScorerQueue>> queues_;
  std::atomic<uint64_t> groups_ = 0;  // That were numbered for groupwise scorers.
  // Destroyed first: it waits for the streams, and they for the scoring.
  std::optional<rpc::StreamRunner> runner_;
};

}  // namespace oxbow::reward
