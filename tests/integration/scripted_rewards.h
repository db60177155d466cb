// SPDX-License-Identifier: Apache-2.0
// A reward server whose answers a test writes: other people's servers fail in more ways than ours.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/server_context.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/server.h"

namespace oxbow::testing {

class ScriptedRewards final : public v1::Reward::Service {
 public:
  // The server's answer on one image.
  struct Answer {
    double value = 0;        // Score of every wanted reward.
    std::string item_error;  // The status of this image; empty: it is scored.
    std::string call_error;  // Ends the call, as an exception in a Python server does.
    bool final = false;      // `item_error` says that this image cannot be scored; else it broke.
  };
  using Script = std::function<Answer(const std::string& prompt, const v1::Image& image)>;

  // Knows the rewards `names`. `script` is called from many threads.
  ScriptedRewards(std::vector<std::string> names, Script script,
                  const std::string& listen = "127.0.0.1:0")
      : names_(std::move(names)),
        script_(std::move(script)),
        server_(rpc::Server::Start({.listen = listen}, {this}).value()) {}
  ~ScriptedRewards() override { server_->Shutdown(absl::ZeroDuration()); }

  const std::string& endpoint() const { return server_->endpoint(); }

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                        v1::DescribeResponse* response) override {
    for (const std::string& name : names_) response->add_rewards()->set_name(name);
    response->set_batch_max(64);
    return grpc::Status::OK;
  }

  grpc::Status Score(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>* stream) override {
    for (v1::ScoreRequest request; stream->Read(&request);) {
      for (const v1::ScoreItem& item : request.items()) {
        const Answer answer = script_(request.prompt().text(), item.image());
        if (!answer.call_error.empty()) {
          return grpc::Status(grpc::StatusCode::UNKNOWN,
                              "Exception calling application: " + answer.call_error);
        }
        v1::ScoreResponse response;
        response.set_item(item.item());
        if (!answer.item_error.empty()) {
          response.set_status_code(answer.final ? grpc::StatusCode::INVALID_ARGUMENT
                                                : grpc::StatusCode::INTERNAL);
          response.set_status_message(answer.item_error);
        } else {
          for (const std::string& name : request.rewards()) {
            v1::NamedValue& value = *response.add_rewards();
            value.set_name(name);
            value.set_value(answer.value);
          }
        }
        stream->Write(response);
      }
    }
    return grpc::Status::OK;
  }

 private:
  const std::vector<std::string> names_;
  const Script script_;
  const std::unique_ptr<rpc::Server> server_;
};

// The mean brightness of an image in [0, 1]: a reward that noise and policy both move.
inline double Brightness(const v1::Image& image) {
  double sum = 0;
  for (const char pixel : image.pixels()) sum += static_cast<uint8_t>(pixel);
  return sum / (255 * static_cast<double>(image.pixels().size()));
}

}  // namespace oxbow::testing
