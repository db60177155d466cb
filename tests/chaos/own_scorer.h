// SPDX-License-Identifier: Apache-2.0
// A reward server of the harness: this build's scorers, and NaN in place of their scores when
// asked.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <memory>
#include <string>

#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/server.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::chaos {

class OwnScorer final : public v1::Reward::Service {
 public:
  enum class Nan { kNever, kForHalf, kAlways };

  OwnScorer();
  ~OwnScorer() override { server_->Shutdown(absl::ZeroDuration()); }

  const std::string& endpoint() const { return server_->endpoint(); }

  // Half: the same images each time, those with an even sum of pixels.
  void Answer(Nan nan) { nan_ = nan; }

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;
  grpc::Status Score(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>* stream) override;

 private:
  bool AnswersNan(const v1::Image& image) const;
  v1::ScoreResponse ScoreItem(const v1::ScoreRequest& request, const v1::ScoreItem& item) const;

  const reward::ScorerPanel panel_;
  std::atomic<Nan> nan_ = Nan::kNever;
  const std::unique_ptr<rpc::Server> server_;
};

}  // namespace oxbow::chaos
