// The Reward RPCs over a panel of scorers: converts messages, calls scorers, counts.
//
// Scorers run on threads of their own. A batch that finds too many others waiting for them is
// refused with RESOURCE_EXHAUSTED: its client asks another replica, or again later. A stream that
// waits costs no thread.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/server.h"
#include "rpc/stream.h"
#include "services/reward/reward_metrics.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::reward {

class RewardService final : public v1::Reward::Service, public rpc::HasStreams {
 public:
  using ScoreStream = rpc::Stream<v1::ScoreRequest, v1::ScoreResponse>;
  struct Options {
    uint32_t batch_max = 64;    // Items per ScoreRequest; a larger request ends the call.
    uint32_t threads = 4;       // Batches that are scored at a time.
    uint32_t waiting_max = 64;  // Batches that wait for a thread.
    rpc::StreamRunner::Options streams = {.threads = 2};
  };

  // `panel`, `metrics` and `clock` outlive the service.
  RewardService(Options options, const ScorerPanel& panel, RewardMetrics& metrics,
                const Clock& clock);
  ~RewardService() override;

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;

  rpc::StreamRunner& streams() override { return *runner_; }

  // Serves one call. Public for callers without a network. INVALID_ARGUMENT for a batch over
  // batch_max, NOT_FOUND for a reward that this server does not have, RESOURCE_EXHAUSTED for a
  // batch too many: the call ends. An error of one item is that item's status; the call continues.
  rpc::Handler Score(ScoreStream& stream);

 private:
  // What one call does, and its counts for its log line.
  struct Call {
    ScoreStream& stream;
    v1::ScoreRequest request;
    std::atomic<bool> scored = false;  // The batch: all answers are sent, or the client is gone.
    uint64_t images = 0;
    uint64_t failed = 0;
    absl::Status failure;  // The first failure.
  };

  absl::Status Queue(Call& call);
  void ScoreBatch(Call& call, const std::vector<Scorer*>& scorers);
  void Answer(Call& call, std::vector<v1::ScoreResponse> responses);
  void AddOutcome(const std::string& reward, const absl::StatusOr<reward::Score>& score,
                  v1::ScoreResponse& response);
  absl::Status Ended(const Call& call, absl::Duration start, const absl::Status& status);

  const Options options_;
  const ScorerPanel& panel_;
  RewardMetrics& metrics_;
  const Clock& clock_;
  BoundedQueue<std::function<void()>> batches_;
  std::vector<std::thread> scoring_;
  // Destroyed first: it waits for the streams, and they for the scoring.
  std::optional<rpc::StreamRunner> runner_;
};

}  // namespace oxbow::reward
