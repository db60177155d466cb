// SPDX-License-Identifier: Apache-2.0
// For any batches of pictures and videos, also in pieces: each item is answered once, with all
// wanted rewards within their range or with an error and none.
#include <list>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "base/check.h"
#include "services/reward/reward_service.h"
#include "services/reward/scorer_table.h"
#include "telemetry/metrics.h"
#include "tests/fuzz/call_script.h"
#include "tests/fuzz/served_stream.h"

namespace oxbow::reward {
namespace {

enum Call : uint8_t { kScore, kNewScore, kDescribe, kCalls };

// Holds no state between calls, so it lives as long as the target.
struct Server {
  Server()
      : panel(*ScorerPanel::Create(EntriesNamed(
            {"digits_ocr", "digits_strict", "plates_reader", "clip_ocr", "clip_steady"}))),
        metrics(registry, panel),
        service({.batch_max = 8,
                 .queue = {.threads = 1, .batch_wait = absl::ZeroDuration()},
                 .streams = fuzz::NoThreads()},
                panel, metrics, clock) {
    for (const auto& scorer : panel.scorers()) {
      const RewardFacts& facts = scorer->facts();
      ranges[facts.name] = {facts.value_min, facts.value_max};
    }
  }
  FakeClock clock;
  prometheus::Registry registry;
  ScorerPanel panel;
  RewardMetrics metrics;
  RewardService service;
  std::map<std::string, std::pair<double, double>> ranges;
};

class Client {
 public:
  explicit Client(Server& server) : server_(server) {}

  void Do(const fuzz::CallStep& step) {
    if (step.call == kDescribe) {
      v1::DescribeResponse response;
      server_.service.Describe(nullptr, nullptr, &response);
      OXBOW_CHECK(response.rewards_size() == static_cast<int>(server_.ranges.size()));
      return;
    }
    if (step.call == kNewScore) call_.reset();
    if (call_ == nullptr) Open();
    if (!open_) {
      v1::ScoreRequest request;
      if (!fuzz::Parse(step.message, request)) request.Clear();
      answers_ = 0;
      items_ = request.items_size();
      wanted_ = request.rewards_size() > 0 ? request.rewards_size()
                                           : static_cast<int>(server_.ranges.size());
    }
    const bool taken = call_->Send(step.message);
    const auto over = [&] { return call_->ended() || call_->status().has_value(); };
    // The scoring thread answers beside the runner's.
    while (taken && !over() && !call_->reads()) {
      std::this_thread::yield();
      call_->Serve();
    }
    OXBOW_CHECK(answers_ <= items_) << answers_;
    // Pieces of its media are missing: all or none is answered.
    open_ = !over() && answers_ < items_;
    OXBOW_CHECK(!open_ || answers_ == 0) << answers_;
    if (over()) call_.reset();
  }

 private:
  using Call = fuzz::ServedStream<v1::ScoreRequest, v1::ScoreResponse>;

  void Open() {
    open_ = false;
    auto* reactor = RewardService::ScoreStream::Start(
        context_.emplace_back(), server_.service.streams(),
        [this](RewardService::ScoreStream& stream) { return server_.service.Score(stream); },
        std::nullopt);
    call_ = std::make_unique<Call>(reactor, fuzz::RunnerOf(server_.service.streams()),
                                   [this](const v1::ScoreResponse& answer) { Check(answer); });
  }

  void Check(const v1::ScoreResponse& answer) {
    ++answers_;
    OXBOW_CHECK(answer.rewards_size() == (answer.status_code() == 0 ? wanted_ : 0))
        << answer.ShortDebugString();
    for (const v1::NamedValue& reward : answer.rewards()) {
      const auto [low, high] = server_.ranges.at(reward.name());
      OXBOW_CHECK(reward.value() >= low && reward.value() <= high) << answer.ShortDebugString();
    }
  }

  Server& server_;
  std::list<grpc::CallbackServerContext> context_;
  bool open_ = false;  // The last batch is not whole.
  int answers_ = 0;    // To the last batch.
  int items_ = 0;      // In the last batch.
  int wanted_ = 0;     // Rewards of each item.
  std::unique_ptr<Call> call_;
};

}  // namespace
}  // namespace oxbow::reward

std::vector<const google::protobuf::Message*> oxbow::fuzz::CallMessages() {
  return {&v1::ScoreRequest::default_instance(), &v1::ScoreRequest::default_instance(),
          &v1::DescribeRequest::default_instance()};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  fuzz::BeQuiet();
  static reward::Server server;
  reward::Client client(server);
  for (const fuzz::CallStep& step : fuzz::Script(data, size, reward::kCalls)) client.Do(step);
  return 0;
}
