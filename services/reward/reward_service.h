// The Reward RPCs over a panel of scorers: converts messages, calls scorers, counts. Holds no
// state.
#pragma once

#include "base/clock.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "services/reward/reward_metrics.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::reward {

class RewardService final : public v1::Reward::Service {
 public:
  struct Options {
    uint32_t batch_max = 64;  // Items per ScoreRequest; a larger request ends the call.
  };

  // `panel`, `metrics` and `clock` outlive the service.
  RewardService(Options options, const ScorerPanel& panel, RewardMetrics& metrics,
                const Clock& clock);

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;

  // INVALID_ARGUMENT for a batch over batch_max, NOT_FOUND for a reward that this server does not
  // have: the call ends. An error of one item is that item's status, and the call continues.
  grpc::Status Score(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>* stream) override;

 private:
  using Stream = grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>;
  // Counts of one call, for its log line.
  struct Tally {
    uint64_t images = 0;
    uint64_t failed = 0;
    absl::Status failure;  // The first failure.
  };
  absl::Status ScoreBatches(grpc::ServerContext& context, Stream& stream, Tally& tally);
  v1::ScoreResponse ScoreItem(const v1::Prompt& prompt, v1::ScoreItem& item,
                              const std::vector<const Scorer*>& scorers);

  const Options options_;
  const ScorerPanel& panel_;
  RewardMetrics& metrics_;
  const Clock& clock_;
};

}  // namespace oxbow::reward
