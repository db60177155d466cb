// SPDX-License-Identifier: Apache-2.0
// A run whose servers are full of streams that do nothing goes on, and throws no group away.
#include <signal.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "oxbow/v1/replay_buffer.grpc.pb.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/channel.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kIdle = 100;  // On each server; gRPC gives a server 64 threads for blocking calls.

std::string EndpointOf(const TrainingRun& run, const std::string& name) {
  std::ifstream in(run.directory() / "endpoints.json");
  const nlohmann::json endpoints = nlohmann::json::parse(in);
  for (const nlohmann::json& service : endpoints["services"]) {
    if (service["name"].get<std::string>().rfind(name, 0) == 0) return service["grpc"];
  }
  ADD_FAILURE() << "no service: " << name;
  return "";
}

// Streams of one method that are open and send nothing.
template <typename Stub, typename Open>
class IdleStreams {
 public:
  IdleStreams(std::unique_ptr<Stub> stub, Open open) : stub_(std::move(stub)) {
    for (int i = 0; i < kIdle; ++i) {
      contexts_.push_back(rpc::ContextWithDeadline(kRunDeadline));
      streams_.push_back(open(*stub_, contexts_.back().get()));
    }
  }
  ~IdleStreams() {
    for (auto& context : contexts_) context->TryCancel();
    for (auto& stream : streams_) (void)stream->Finish();
  }

 private:
  const std::unique_ptr<Stub> stub_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<decltype(std::declval<Open>()(*stub_, static_cast<grpc::ClientContext*>(nullptr)))>
      streams_;
};

// Promise: Open streams stop nobody. Any number of idle or slow streams may be open on any server
// of a run. Other calls are served, and groups arrive. A stream without a header holds none of the
// sink's budget; one whose peer falls silent ends and gives it back.
TEST(StreamsTest, IdleStreamsOnEveryServerDoNotStopTheRunAndNoGroupIsThrownAway) {
  TrainingRun run({"run.steps=100000", "batch.groups=4", "services.rollout_workers=1",
                   "services.reward_servers=1"});
  ASSERT_TRUE(run.WaitForStep(1));
  const std::string learner = EndpointOf(run, "learner");
  const IdleStreams inserts(v1::ExperienceSink::NewStub(rpc::Connect(learner)),
                            [](auto& stub, auto* context) { return stub.Insert(context); });
  const IdleStreams scores(v1::Reward::NewStub(rpc::Connect(EndpointOf(run, "reward"))),
                           [](auto& stub, auto* context) { return stub.Score(context); });
  const IdleStreams offers(v1::ReplayBuffer::NewStub(rpc::Connect(EndpointOf(run, "replay"))),
                           [](auto& stub, auto* context) { return stub.Offer(context); });
  const int64_t step = run.metrics().back()["step"];
  EXPECT_TRUE(run.WaitForStep(step + 4));
  const Outcome health = RunOxbow({"health", "--addr", learner, "--timeout", "20s"});
  EXPECT_THAT(health.output, HasSubstr("SERVING"));
  EXPECT_EQ(health.exit_code, 0);
  run.process().Kill(SIGINT);
  ASSERT_EQ(run.WaitExit().value(), 130) << run.process().error_output();
  EXPECT_THAT(run.Series("rollout/groups_discarded"), Each(0));
  EXPECT_THAT(run.Series("buffer/attached"), Each(1));
}

}  // namespace
}  // namespace oxbow::testing
