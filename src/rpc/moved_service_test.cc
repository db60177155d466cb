// SPDX-License-Identifier: Apache-2.0
// A service that gets another address behind the same name, as a pod does that is made again. The
// executable has a resolver of its own, so it is one of its own.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/health_service.h"
#include "rpc/server.h"
#include "tests/testing/eventually.h"

namespace {

constexpr std::string_view kName = "learner.moved.example";
std::atomic<const char*> address = "127.0.0.1";

}  // namespace

extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool moves = node != nullptr && kName == node;
  return real(moves ? address.load() : node, service, hints, found);
}

namespace oxbow::rpc {
namespace {

// Promise: The network may break.
TEST(MovedServiceTest, IsFoundAtItsNewAddressOnceTheNameHasIt) {
  setenv("GRPC_DNS_RESOLVER", "native", 1);  // The one that asks the function above.
  v1::Coordinator::Service service;
  auto server = Server::Start({}, {&service}).value();
  const std::string port = server->endpoint().substr(server->endpoint().rfind(':'));
  const auto channel = Connect(std::string(kName) + port);
  const auto answers = [&] {
    return CallBytes(channel, kHealthCheck, absl::Seconds(2)).bytes == "\x08\x01";
  };
  ASSERT_TRUE(answers());

  server->Shutdown(absl::ZeroDuration());
  server.reset();
  EXPECT_FALSE(answers());
  server = Server::Start({.listen = "127.0.0.2" + port}, {&service}).value();
  address = "127.0.0.2";
  const absl::Duration began = Clock::Steady().Now();
  EXPECT_TRUE(testing::Eventually(answers));
  EXPECT_LT(Clock::Steady().Now() - began, absl::Seconds(20))
      << "gRPC by itself asks for a name every 30 s";
}

}  // namespace
}  // namespace oxbow::rpc
