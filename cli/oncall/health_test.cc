// SPDX-License-Identifier: Apache-2.0
// `health` and `status` against a server in this process.
#include "cli/oncall/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/run/status.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/server.h"

namespace oxbow::cli {
namespace {

class FakeCoordinator final : public v1::Coordinator::Service {
  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*,
                      v1::StatusResponse* response) override {
    response->set_run_name("digits");
    response->set_learner_step(7);
    response->set_steps_total(9);
    response->set_wall_seconds(61);
    auto& worker = *response->add_workers();
    worker.set_worker_id("rollout_worker-0");
    worker.set_policy_version(14);
    auto& rank = *response->add_ranks();
    rank.set_rank(1);
    rank.set_metrics_endpoint("h:9");
    auto& share = *response->add_time_share();
    share.set_name("wait");
    share.set_value(0.62);
    return grpc::Status::OK;
  }
};

class ServedTest : public ::testing::Test {
 protected:
  FakeCoordinator coordinator_;
  std::unique_ptr<rpc::Server> server_ = rpc::Server::Start({}, {&coordinator_}).value();
};

TEST_F(ServedTest, HealthTellsServingAndGone) {
  const absl::Duration timeout = absl::Seconds(5);
  EXPECT_EQ(HealthExitCode(IsServing(server_->endpoint(), timeout)), 0);
  const auto unknown = IsServing(server_->endpoint(), timeout, "oxbow.v1.Reward/pickscore");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(HealthExitCode(unknown), 3);
  const std::string endpoint = server_->endpoint();
  server_.reset();
  EXPECT_EQ(HealthExitCode(IsServing(endpoint, timeout)), 2);
  EXPECT_EQ(HealthExitCode(false), 1);
}

TEST_F(ServedTest, HealthIsAskedWhereTheEnvironmentSays) {
  const auto ask = [](const std::string& endpoint) {
    CLI::App app;
    int exit_code = -1;
    AskHealth(app, exit_code);
    setenv("OXBOW_HEALTH_ADDR", endpoint.c_str(), /*overwrite=*/1);
    app.parse("");
    unsetenv("OXBOW_HEALTH_ADDR");
    return exit_code;
  };
  const std::string endpoint = server_->endpoint();
  EXPECT_EQ(ask(endpoint), 0);
  server_.reset();
  EXPECT_EQ(ask(endpoint), 2);
}

TEST_F(ServedTest, StatusNamesProgressWorkersAndTheBottleneck) {
  const auto status = AskStatus(server_->endpoint(), absl::Seconds(5));
  ASSERT_TRUE(status.ok()) << status.status();
  const std::string text = StatusText(*status);
  EXPECT_THAT(text, ::testing::HasSubstr("step 7/9"));
  EXPECT_THAT(text, ::testing::HasSubstr("limit      rollouts: waiting for rollouts 62 %"));
  EXPECT_THAT(text, ::testing::HasSubstr("rank 1     seen 0.0 s ago, metrics at h:9"));
  EXPECT_THAT(text, ::testing::HasSubstr("rollout_worker-0                   14"));
}

}  // namespace
}  // namespace oxbow::cli
