// The Reward RPCs over a panel of scorers: converts messages, hands items to the scorers' queues,
// counts.
//
// A reward whose queue is full is refused with RESOURCE_EXHAUSTED: its client asks another replica,
// or again later. A stream that waits costs no thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/server.h"
#include "rpc/stream.h"
#include "services/reward/reward_metrics.h"
#include "services/reward/scorer_panel.h"
#include "services/reward/scorer_queue.h"

namespace oxbow::reward {

class RewardService final : public v1::Reward::Service, public rpc::HasStreams {
 public:
  using ScoreStream = rpc::Stream<v1::ScoreRequest, v1::ScoreResponse>;
  struct Options {
    uint32_t batch_max = 64;  // Items per ScoreRequest; a larger request ends the call.
    ScorerQueue::Options queue;
    rpc::StreamRunner::Options streams = {.threads = 2};
  };

  // `panel`, `metrics` and `clock` outlive the service.
  RewardService(Options options, const ScorerPanel& panel, RewardMetrics& metrics,
                const Clock& clock);
  ~RewardService() override;

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;

  // For callers of other protocols: the queue of one of the panel's scorers, and a number for a
  // group of items that no other group has. Thread-safe.
  ScorerQueue& QueueOf(const Scorer& scorer) { return *queues_.at(&scorer); }
  uint64_t NextGroup() { return ++groups_; }

  rpc::StreamRunner& streams() override { return *runner_; }

  // Serves one call. Public for callers without a network. INVALID_ARGUMENT for a batch over
  // batch_max, NOT_FOUND for a reward that this server does not have, RESOURCE_EXHAUSTED for a
  // batch too many: the call ends. An error of one item is that item's status; the call continues.
  rpc::Handler Score(ScoreStream& stream);

 private:
  // A request that is scored: its items, and what the scorers say of them.
  struct Work;
  // What one call does, and its counts for its log line.
  struct Call {
    ScoreStream& stream;
    v1::ScoreRequest request;
    uint64_t images = 0;
    uint64_t failed = 0;
    absl::Status failure;  // The first failure.
  };

  absl::StatusOr<std::shared_ptr<Work>> Begin(Call& call);
  absl::Status Queue(const std::shared_ptr<Work>& work, size_t scorer);
  void Answer(Call& call, Work& work);
  void AddOutcome(const std::string& reward, const absl::StatusOr<reward::Score>& score,
                  v1::ScoreResponse& response);
  absl::Status Ended(const Call& call, absl::Duration start, const absl::Status& status);

  const Options options_;
  const ScorerPanel& panel_;
  RewardMetrics& metrics_;
  const Clock& clock_;
  std::map<const Scorer*, std::unique_ptr<ScorerQueue>> queues_;
  std::atomic<uint64_t> groups_ = 0;  // That were numbered for groupwise scorers.
  // Destroyed first: it waits for the streams, and they for the scoring.
  std::optional<rpc::StreamRunner> runner_;
};

}  // namespace oxbow::reward
