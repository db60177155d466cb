// SPDX-License-Identifier: Apache-2.0
// A reward server whose rewards and answers a test defines. It records what it is asked.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/server.h"
#include "services/reward/reward_client.h"

namespace oxbow::reward {

class FakeRewardServer final : public v1::Reward::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>;
  using Handler = std::function<grpc::Status(const v1::ScoreRequest&, Stream&)>;

  FakeRewardServer(std::vector<v1::RewardDescription> rewards, uint32_t batch_max, Handler handler,
                   const std::string& listen = "127.0.0.1:0")
      : batch_max_(batch_max), handler_(std::move(handler)), rewards_(std::move(rewards)) {
    server_ = rpc::Server::Start({.listen = listen}, {this}).value();
  }
  ~FakeRewardServer() override { server_->Shutdown(absl::Seconds(5)); }

  const std::string& endpoint() const { return server_->endpoint(); }
  std::vector<v1::ScoreRequest> requests() const {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }
  // The number of items of each request.
  std::vector<int> batches() const {
    absl::MutexLock lock(&mutex_);
    std::vector<int> sizes;
    for (const v1::ScoreRequest& request : requests_) sizes.push_back(request.items_size());
    return sizes;
  }

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                        v1::DescribeResponse* response) override {
    response->mutable_rewards()->Assign(rewards_.begin(), rewards_.end());
    response->set_batch_max(batch_max_);
    response->set_protocol(protocol_);
    return grpc::Status::OK;
  }
  // From now on; 0, as at first: it does not say.
  void Speak(uint32_t protocol) { protocol_ = protocol; }

  // Trailing metadata of all calls from now on.
  void EndCallsWith(const std::string& key, const std::string& value) {
    absl::MutexLock lock(&mutex_);
    trailing_ = {key, value};
  }

  grpc::Status Score(grpc::ServerContext* context, Stream* stream) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!trailing_.first.empty()) context->AddTrailingMetadata(trailing_.first, trailing_.second);
    }
    v1::ScoreRequest request;
    while (stream->Read(&request)) {
      {
        absl::MutexLock lock(&mutex_);
        requests_.push_back(request);
      }
      const grpc::Status status = handler_(request, *stream);
      if (!status.ok()) return status;
    }
    return grpc::Status::OK;
  }

 private:
  std::atomic<uint32_t> protocol_ = 0;
  const uint32_t batch_max_;
  const Handler handler_;
  const std::vector<v1::RewardDescription> rewards_;
  mutable absl::Mutex mutex_;
  std::vector<v1::ScoreRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::pair<std::string, std::string> trailing_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<rpc::Server> server_;
};

inline v1::RewardDescription Described(const std::string& name, const std::string& identity = "") {
  v1::RewardDescription description;
  description.set_name(name);
  description.set_identity(identity);
  return description;
}

// RewardClient::ScoreMedia of pictures.
inline std::vector<absl::StatusOr<Scores>> ScorePictures(RewardClient& client,
                                                         const std::string& prompt,
                                                         const std::string& metadata_json,
                                                         const std::vector<Image8>& pictures,
                                                         const Patience& patience = {}) {
  std::vector<Frames> media;
  for (const Image8& picture : pictures) media.emplace_back(&picture, 1);
  return client.ScoreMedia(prompt, metadata_json, media, patience);
}

}  // namespace oxbow::reward
