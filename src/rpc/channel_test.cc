// SPDX-License-Identifier: Apache-2.0
#include "rpc/channel.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/health_service.h"
#include "rpc/server.h"
#include "tests/testing/network_proxy.h"

namespace oxbow::rpc {
namespace {

// A line around the world, or a machine that starts many processes at once.
// Promise: The network may break.
TEST(ChannelTest, TheFirstCallWaitsForAConnectionThatTakesLong) {
  v1::Coordinator::Service service;
  const auto server = Server::Start({}, {&service}).value();
  const auto proxy = testing::NetworkProxy::Start(server->endpoint()).value();
  proxy->Delay(absl::Milliseconds(400));
  const ByteAnswer answer = CallBytes(Connect(proxy->endpoint()), kHealthCheck, absl::Seconds(20));
  EXPECT_EQ(answer.bytes, "\x08\x01") << "serving";
  EXPECT_EQ(proxy->connections(), 1u) << "attempts that were given up";
}

// The environment's proxy for one test; tests of one process run one after another.
class ProxyOfTheEnvironment {
 public:
  explicit ProxyOfTheEnvironment(const std::string& endpoint) {
    for (const char* name : kNames) ::setenv(name, ("http://" + endpoint).c_str(), 1);
    for (const char* name : {"no_grpc_proxy", "no_proxy"}) ::setenv(name, "", 1);
  }
  ~ProxyOfTheEnvironment() {
    for (const char* name : kNames) ::unsetenv(name);
    for (const char* name : {"no_grpc_proxy", "no_proxy"}) ::unsetenv(name);
    UseHttpProxy(false);
  }

 private:
  static constexpr const char* kNames[] = {"grpc_proxy", "https_proxy", "http_proxy"};
};

// Promise: The surroundings of a run change nothing. Calls between services go directly, whatever
// proxy the environment names, unless the run is told otherwise. Variables of a launcher of ranks
// do not reach the children of `oxbow train`. Certificates without addresses cause no line of an
// error in a fleet that is well.
TEST(ChannelTest, CallsOfARunPassNoProxyOfTheEnvironmentUnlessTheyAreToldTo) {
  v1::Coordinator::Service service;
  const auto server = Server::Start({}, {&service}).value();
  const auto proxy = testing::NetworkProxy::Start("").value();
  const ProxyOfTheEnvironment environment(proxy->endpoint());
  const auto ask = [&] {
    return CallBytes(Connect(server->endpoint()), kHealthCheck, absl::Seconds(20)).bytes;
  };
  EXPECT_EQ(ask(), "\x08\x01") << "serving";
  EXPECT_EQ(proxy->connections(), 0u);
  UseHttpProxy(true);
  EXPECT_EQ(ask(), "\x08\x01") << "serving";
  EXPECT_EQ(proxy->connections(), 1u);
}

int Argument(Pings pings, const std::string& name) {
  const grpc::ChannelArguments arguments = ArgumentsOf(pings);
  const grpc_channel_args all = arguments.c_channel_args();
  for (size_t i = 0; i < all.num_args; ++i) {
    if (all.args[i].key == name) return all.args[i].value.integer;
  }
  ADD_FAILURE() << "not set: " << name;
  return -1;
}

// A server of gRPC's ends a connection after three pings without a call, or within 300 s.
// Promise: A server that is not ours is not cut off. Servers of `reward.endpoints` are pinged only
// during a call, and less often once they ask for it.
TEST(ChannelTest, ServersOfSomebodyElseArePingedRarelyAndOnlyDuringCalls) {
  for (const Pings pings : {Pings::kDuringCalls, Pings::kRarely}) {
    EXPECT_EQ(Argument(pings, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS), 0);
    EXPECT_GE(Argument(pings, GRPC_ARG_KEEPALIVE_TIME_MS), 60'000);
  }
  EXPECT_GT(Argument(Pings::kRarely, GRPC_ARG_KEEPALIVE_TIME_MS), 300'000);
  EXPECT_EQ(Argument(Pings::kOften, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS), 1);
}

}  // namespace
}  // namespace oxbow::rpc
