// SPDX-License-Identifier: Apache-2.0
// Watchers with certificates: each reports, accuses and watches in its own name alone.
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include "rpc/channel.h"
#include "rpc/server.h"
#include "rpc/tls.h"
#include "services/weights/weight_channel_service.h"
#include "tests/testing/certificates.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::weights {
namespace {

constexpr absl::Duration kAnswer = absl::Seconds(20);

class WatcherIdentityTest : public ::testing::Test {
 protected:
  WatcherIdentityTest() {
    authority_.Write(scratch_.path() / "learner", {});
    authority_.Write(scratch_.path() / "w1", {.names = "DNS:oxbow,URI:oxbow://oxbow/worker/w1"});
    Use("learner");
    server_ = rpc::Server::Start({}, {&service_}).value();
    Use("w1");
    stub_ = v1::WeightChannel::NewStub(rpc::Connect(server_->endpoint()));
  }
  ~WatcherIdentityTest() override {
    service_.Stop();
    EXPECT_TRUE(rpc::UseTls({}).ok());
  }
  void Use(const std::string& folder) {
    const std::filesystem::path files = scratch_.path() / folder;
    const auto used = rpc::UseTls(
        {.files = {.ca = files / "ca.crt", .cert = files / "tls.crt", .key = files / "tls.key"},
         .name = "oxbow"});
    ASSERT_TRUE(used.ok()) << used.status();
  }

  grpc::StatusCode ReportApplied(const std::string& id) {
    v1::ReportAppliedRequest request;
    request.set_worker_id(id);
    v1::ReportAppliedResponse response;
    return stub_->ReportApplied(rpc::ContextWithDeadline(kAnswer).get(), request, &response)
        .error_code();
  }
  grpc::StatusCode ReportPeer(const std::string& id) {
    v1::ReportPeerRequest request;
    request.set_worker_id(id);
    v1::ReportPeerResponse response;
    return stub_->ReportPeer(rpc::ContextWithDeadline(kAnswer).get(), request, &response)
        .error_code();
  }
  // The end of a Watch that the learner ends at once, for it serves no weights any more.
  grpc::StatusCode Watch(const std::string& id) {
    v1::WatchRequest request;
    request.set_worker_id(id);
    const auto context = rpc::ContextWithDeadline(kAnswer);
    const auto reader = stub_->Watch(context.get(), request);
    v1::WatchResponse response;
    while (reader->Read(&response)) {
    }
    return reader->Finish().error_code();
  }

  const testing::ScopedDirectory scratch_;
  const testing::Authority authority_{"ours"};
  prometheus::Registry registry_;
  PublishMetrics metrics_{registry_};
  WeightChannelService service_{{}, metrics_, Clock::Steady(), nullptr};
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::WeightChannel::Stub> stub_;
};

// Promise: A certificate allows the calls of its role alone.
TEST_F(WatcherIdentityTest, CallsInAnotherWorkersNameAreRefused) {
  service_.Stop();
  EXPECT_EQ(ReportApplied("w1"), grpc::StatusCode::OK);
  EXPECT_EQ(ReportPeer("w1"), grpc::StatusCode::OK);
  EXPECT_EQ(Watch("w1"), grpc::StatusCode::UNAVAILABLE) << "of the stopped learner";
  EXPECT_EQ(ReportApplied("w2"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(ReportPeer("w2"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Watch("w2"), grpc::StatusCode::PERMISSION_DENIED);
}

}  // namespace
}  // namespace oxbow::weights
