// SPDX-License-Identifier: Apache-2.0
#include "rpc/channel.h"

#include <gtest/gtest.h>

#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/byte_call.h"
#include "rpc/health_service.h"
#include "rpc/server.h"
#include "tests/testing/network_proxy.h"

namespace oxbow::rpc {
namespace {

// A line around the world, or a machine that starts many processes at once.
TEST(ChannelTest, TheFirstCallWaitsForAConnectionThatTakesLong) {
  v1::Coordinator::Service service;
  const auto server = Server::Start({}, {&service}).value();
  const auto proxy = testing::NetworkProxy::Start(server->endpoint()).value();
  proxy->Delay(absl::Milliseconds(400));
  const ByteAnswer answer = CallBytes(Connect(proxy->endpoint()), kHealthCheck, absl::Seconds(20));
  EXPECT_EQ(answer.bytes, "\x08\x01") << "serving";
  EXPECT_EQ(proxy->connections(), 1u) << "attempts that were given up";
}

}  // namespace
}  // namespace oxbow::rpc
