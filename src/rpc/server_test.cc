// SPDX-License-Identifier: Apache-2.0
// A server's word about its health when its threads are taken, and what it counts.
#include "rpc/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "oxbow/v1/coordinator.grpc.pb.h"
#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/health_service.h"
#include "rpc/retry.h"
#include "rpc/status.h"
#include "rpc/stream.h"
#include "telemetry/metrics.h"

namespace oxbow::rpc {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(20);

// Every Status takes a thread until it is let go.
class HeldService final : public v1::Coordinator::Service {
 public:
  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*,
                      v1::StatusResponse*) override {
    entered.Notify();
    go_on.WaitForNotification();
    return grpc::Status::OK;
  }
  absl::Notification entered;
  absl::Notification go_on;
};

// Every stream takes the only thread of its runner until it is let go.
class HeldStreams final : public v1::ExperienceSink::Service, public HasStreams {
 public:
  using InsertStream = Stream<v1::InsertRequest, v1::InsertResponse>;
  HeldStreams() {
    MarkMethodStreamed(0, nullptr);
    MarkMethodCallback(0, StreamHandler<v1::InsertRequest, v1::InsertResponse>(
                              runner_, [this](InsertStream&) { return Hold(); }));
  }
  StreamRunner& streams() override { return runner_; }
  absl::Notification entered;
  absl::Notification go_on;

 private:
  Handler Hold() {
    entered.Notify();
    go_on.WaitForNotification();
    co_return absl::OkStatus();
  }
  StreamRunner runner_{{.threads = 1}};
};

ByteAnswer Check(const std::string& endpoint) {
  return CallBytes(Connect(endpoint), kHealthCheck, kDeadline);
}

uint64_t Refused() {
  uint64_t busy = 0;
  for (const auto& [method_and_reason, calls] : telemetry::RefusedCalls::This().counts()) {
    if (method_and_reason.second == "busy") busy += calls;
  }
  return busy;
}

// Promise: A busy server costs no group.
TEST(ServerTest, RefusedCallsAreCountedAndHealthDoesNotSayServing) {
  HeldService service;
  const auto server = Server::Start({.threads_max = 2}, {&service}).value();
  EXPECT_EQ(Check(server->endpoint()).bytes, "\x08\x01") << "serving";
  const auto stub = v1::Coordinator::NewStub(Connect(server->endpoint()));
  const auto ask = [&] {
    v1::StatusResponse response;
    return stub->Status(ContextWithDeadline(kDeadline).get(), {}, &response).error_code();
  };
  std::future<grpc::StatusCode> held = std::async(std::launch::async, ask);
  service.entered.WaitForNotification();
  const uint64_t before = Refused();
  EXPECT_EQ(ask(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Refused(), before + 1);
  EXPECT_EQ(Check(server->endpoint()).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  service.go_on.Notify();
  EXPECT_EQ(held.get(), grpc::StatusCode::OK);
}

// It would never fit, however often it is sent: not a busy server.
TEST(ServerTest, AMessageOverTheLimitIsNoRefusal) {
  HeldStreams service;
  const auto server = Server::Start({}, {&service}).value();
  const auto stub = v1::ExperienceSink::NewStub(Connect(server->endpoint()));
  const auto context = ContextWithDeadline(kDeadline);
  const auto stream = stub->Insert(context.get());
  v1::InsertRequest large;
  large.mutable_chunk()->set_data(std::string(kMessageBytesMax + 1, 'x'));
  stream->Write(large);
  const absl::Status status = FromGrpc(stream->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(FailureOf(status), Failure::kAnswer);
  service.go_on.Notify();
}

// Promise: A busy server costs no group.
TEST(ServerTest, HealthNeedsAThreadOfTheStreamsToo) {
  HeldStreams service;
  const auto server = Server::Start({}, {&service}).value();
  const auto stub = v1::ExperienceSink::NewStub(Connect(server->endpoint()));
  const auto context = ContextWithDeadline(kDeadline);
  const auto stream = stub->Insert(context.get());
  service.entered.WaitForNotification();
  EXPECT_EQ(Check(server->endpoint()).bytes, "\x08\x02") << "not serving";
  service.go_on.Notify();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Check(server->endpoint()).bytes, "\x08\x01");
}

// Has two parts, of which the second is broken.
class PartsService final : public v1::Coordinator::Service, public HasHealth {
 public:
  std::optional<bool> Serves(std::string_view name) const override {
    if (name.empty()) return ready.load();
    if (name == "parts/good") return true;
    if (name == "parts/broken") return false;
    return std::nullopt;
  }
  std::atomic<bool> ready = false;
};

// Promise: Each reward has a health of its own.
TEST(ServerTest, HealthIsThatOfThePartThatIsAskedFor) {
  PartsService service;
  const auto server = Server::Start({}, {&service}).value();
  const auto ask = [&](const std::string& request) {
    return CallBytes(Connect(server->endpoint()), kHealthCheck, kDeadline, request);
  };
  EXPECT_EQ(ask("").bytes, "\x08\x02") << "not ready";
  service.ready = true;
  EXPECT_EQ(ask("").bytes, "\x08\x01");
  EXPECT_EQ(ask(HealthRequest("parts/good")).bytes, "\x08\x01");
  EXPECT_EQ(ask(HealthRequest("parts/broken")).bytes, "\x08\x02");
  for (const std::string& unknown :
       {HealthRequest("parts/other"), HealthRequest(std::string(300, 'x')),
        std::string("\x0a\x05x"), std::string("\xff\xff")}) {
    EXPECT_EQ(ask(unknown).status.error_code(), grpc::StatusCode::NOT_FOUND);
  }
}

}  // namespace
}  // namespace oxbow::rpc
