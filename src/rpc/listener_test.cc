// SPDX-License-Identifier: Apache-2.0
// A server whose process runs out of descriptors, and a port that answers nobody.
#include "rpc/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/descriptor.h"
#include "rpc/channel.h"
#include "rpc/health_service.h"
#include "rpc/server.h"

namespace oxbow::rpc {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kAnswer = absl::Seconds(20);

// A health call over a connection of its own.
grpc::StatusCode Ask(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel =
      grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
  (void)channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kAnswer));
  return CallBytes(channel, kHealthCheck, kAnswer).status.error_code();
}

bool Connects(const Descriptor& socket, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(socket.value, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

// From another address of this machine than that of `oxbow health`.
bool ConnectsFrom(const char* source, const Descriptor& socket, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  return inet_pton(AF_INET, source, &address.sin_addr) == 1 &&
         bind(socket.value, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
         Connects(socket, port);
}

// Waits until the server says hello on a connection, or closes it.
bool IsRefused(const Descriptor& socket) {
  pollfd answer{.fd = socket.value, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&answer, 1, 20'000), 1) << "no answer";
  char byte = 0;
  return recv(socket.value, &byte, 1, MSG_DONTWAIT) <= 0;
}

Descriptor Socket() { return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

int PortOf(const std::string& endpoint) {
  return std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
}

class DescriptorsTest : public ::testing::Test {
 protected:
  DescriptorsTest() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{.rlim_cur = 160, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~DescriptorsTest() override { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  rlimit before_{};
};

// Promise: A port that answers stays open. A server that runs out of descriptors refuses
// connections while it has none, keeps some for its own files, and accepts again afterwards.
// Connections of the machine itself, by which its health is asked, have room of their own. Under
// TLS one address has a limited number of connections that are as young as a handshake may be. A
// process whose port answers nobody over a new connection ends within about two minutes with one
// line and exit code 3, so that its supervisor starts it again. Connections that say nothing delay
// no scrape of metrics. An `oxbow train` without descriptors goes on: it starts no child meanwhile,
// which counts as no death, and starts it when some are free.
TEST_F(DescriptorsTest, AServerThatRanOutOfDescriptorsAcceptsAgainWhenSomeAreFree) {
  const auto server = Server::Start({}, {}).value();
  ASSERT_EQ(Ask(server->endpoint()), grpc::StatusCode::OK);
  const int port = PortOf(server->endpoint());
  {
    std::vector<Descriptor> taken;
    do {
      taken.push_back(Socket());
      ASSERT_TRUE(ConnectsFrom("127.0.0.2", taken.back(), port));
    } while (!IsRefused(taken.back()));
    EXPECT_GT(taken.size(), 30u) << "strangers that were let in";
    // The rest goes to files, as much as there is.
    const Descriptor last = Socket();
    while (taken.back().value >= 0) taken.emplace_back(dup(last.value));
    ASSERT_TRUE(Connects(last, port));
    EXPECT_TRUE(IsRefused(last)) << "with the reserve alone";
  }
  EXPECT_EQ(Ask(server->endpoint()), grpc::StatusCode::OK);
}

// Promise: A port that answers stays open.
TEST_F(DescriptorsTest, StrangersThatTakeAllRoomLeaveSomeForHealth) {
  const auto server = Server::Start({}, {}).value();
  std::vector<Descriptor> strangers;
  do {
    strangers.push_back(Socket());
    ASSERT_TRUE(ConnectsFrom("127.0.0.2", strangers.back(), PortOf(server->endpoint())));
  } while (!IsRefused(strangers.back()));
  EXPECT_EQ(Ask(server->endpoint()), grpc::StatusCode::OK);
}

TEST_F(DescriptorsTest, SomeDescriptorsAreKeptFromConnections) {
  EXPECT_EQ(ConnectionDescriptorsMax(16), 0u);
  EXPECT_EQ(ConnectionDescriptorsMax(1024), 768u);
  EXPECT_EQ(ConnectionDescriptorsMax(1 << 20), (1u << 20) - 1024);
}

// Promise: A port that answers stays open.
TEST(ListenerTest, OneAddressHasALimitedNumberOfYoungConnections) {
  const auto server = Server::Start({.young_max = 8}, {}).value();
  const int port = PortOf(server->endpoint());
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 9; ++i) {
    strangers.push_back(Socket());
    ASSERT_TRUE(ConnectsFrom("127.0.0.2", strangers.back(), port));
    EXPECT_EQ(IsRefused(strangers.back()), i == 8) << i;
  }
  EXPECT_EQ(Ask(server->endpoint()), grpc::StatusCode::OK) << "others have their own";
  strangers.clear();
  bool enters = false;
  for (const absl::Time end = absl::Now() + kAnswer; !enters && absl::Now() < end;) {
    const Descriptor again = Socket();
    enters = ConnectsFrom("127.0.0.2", again, port) && !IsRefused(again);
  }
  EXPECT_TRUE(enters) << "closed ones count no more";
  EXPECT_EQ(YoungConnectionsMax(4096), 384u);
}

TEST(ListenerTest, BothAddressFamiliesAreListenedOn) {
  for (const char* address : {"127.0.0.1:0", "localhost:0", "[::1]:0"}) {
    const auto server = Server::Start({.listen = address}, {});
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_EQ(Ask((*server)->endpoint()), grpc::StatusCode::OK) << (*server)->endpoint();
  }
  const auto bare = Server::Start({.listen = "::1:0"}, {});  // As manifests write a pod's address.
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_THAT((*bare)->endpoint(), ::testing::StartsWith("[::1]:"));
  EXPECT_EQ(Ask((*bare)->endpoint()), grpc::StatusCode::OK);
  const auto wildcard = Listener::Bind("[::]:0");
  ASSERT_TRUE(wildcard.ok()) << wildcard.status();
  EXPECT_TRUE(Connects(Socket(), (*wildcard)->port())) << "IPv4 reaches the wildcard of IPv6";
}

TEST(ListenerTest, AServerThatEndsRefusesCallersAtOnce) {
  const auto server = Server::Start({}, {}).value();
  const int port = PortOf(server->endpoint());
  server->Shutdown(absl::ZeroDuration());
  EXPECT_FALSE(Connects(Socket(), port));
  EXPECT_TRUE(Server::Start({.listen = server->endpoint()}, {}).ok());
}

TEST(ListenerTest, APortIsANumberOf16Bits) {
  for (const char* address : {"127.0.0.1:99999", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:-1",
                              "127.0.0.1", "localhost"}) {
    const auto listener = Listener::Bind(address);
    EXPECT_EQ(listener.status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

TEST(ListenerTest, APortThatIsTakenIsOneLine) {
  const auto server = Server::Start({}, {}).value();
  const absl::Status status = Server::Start({.listen = server->endpoint()}, {}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is the port taken?"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(server->endpoint()));
}

TEST(ListenerTest, AnAddressOfAnotherMachineIsNotTakenForATakenPort) {
  const absl::Status status = Listener::Bind("192.0.2.1:0").status();  // RFC 5737: of nobody.
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("this machine has no address: 192.0.2.1"));
}

SelfProbe::Options Fast(std::function<void(const std::string&)> deaf) {
  return {.every = absl::Milliseconds(1),
          .timeout = absl::Milliseconds(200),
          .failures_max = 3,
          .deaf = std::move(deaf)};
}

// The system completes connections of a socket that nobody accepts from.
// Promise: A port that answers stays open.
TEST(SelfProbeTest, APortThatAnswersNobodyIsReportedInOneLine) {
  const auto silent = Listener::Bind("127.0.0.1:0").value();
  const std::string endpoint = absl::StrCat("127.0.0.1:", silent->port());
  absl::Notification reported;
  std::string line;
  const SelfProbe probe(endpoint, Fast([&](const std::string& said) {
                          line = said;
                          reported.Notify();
                        }),
                        [] { return 0; });
  ASSERT_TRUE(reported.WaitForNotificationWithTimeout(kAnswer));
  EXPECT_THAT(line, HasSubstr(endpoint));
  EXPECT_THAT(line, HasSubstr("3 times in a row"));
}

// Also where the server refuses the call, and while it refuses connections for want of descriptors.
// Promise: A port that answers stays open.
TEST(SelfProbeTest, AnyAnswerIsOne) {
  const auto server = Server::Start({}, {}).value();
  const auto silent = Listener::Bind("127.0.0.1:0").value();
  absl::Notification enough;
  uint64_t asked = 0;
  const auto never = [](const std::string& line) { ADD_FAILURE() << line; };
  const SelfProbe answered(server->endpoint(), Fast(never), [] { return 0; });
  SelfProbe::Options soon = Fast(never);
  soon.timeout = absl::Milliseconds(5);
  const SelfProbe refusing(absl::StrCat("127.0.0.1:", silent->port()), soon, [&] {
    if (++asked == 20) enough.Notify();  // Counts twice a probe.
    return asked;
  });
  EXPECT_TRUE(enough.WaitForNotificationWithTimeout(kAnswer));
}

// Promise: A port that answers stays open.
TEST(SelfProbeDeathTest, TheProcessEndsWithTheExitCodeOfWhatIsUnavailable) {
  EXPECT_EXIT(EndDeafProcess("the own port is deaf"), ::testing::ExitedWithCode(3), "is deaf");
}

}  // namespace
}  // namespace oxbow::rpc
