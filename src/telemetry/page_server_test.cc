// SPDX-License-Identifier: Apache-2.0
// The page of metrics over real sockets, and callers that misbehave.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <string>
#include <vector>

#include "telemetry/metrics.h"

namespace oxbow::telemetry {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Descriptor Connected(int port, const char* host = "127.0.0.1") {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  EXPECT_EQ(getaddrinfo(host, std::to_string(port).c_str(), &hints, &found), 0);
  Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(socket.value, found->ai_addr, found->ai_addrlen), 0) << host;
  freeaddrinfo(found);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(socket.value, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return socket;
}

// Everything until the server closes the connection.
std::string Rest(const Descriptor& socket) {
  std::string text;
  char bytes[4096];
  for (ssize_t count; (count = recv(socket.value, bytes, sizeof bytes, 0)) > 0;) {
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

void Say(const Descriptor& socket, const std::string& text) {
  ASSERT_EQ(send(socket.value, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

std::string Get(int port, const std::string& path = "/metrics", const char* host = "127.0.0.1") {
  const Descriptor socket = Connected(port, host);
  Say(socket, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
  return Rest(socket);
}

TEST(PageServerTest, ThePageIsServedAndNothingElse) {
  const auto server = PageServer::Start("127.0.0.1:0", {}, [] { return "a 1\n"; }).value();
  const std::string answer = Get(server->port());
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\na 1\n"));
  EXPECT_THAT(Get(server->port(), "/metrics?x=1"), EndsWith("a 1\n"));
  EXPECT_THAT(Get(server->port(), "/"), EndsWith("<a href=\"/metrics\">/metrics</a>\n"));
  EXPECT_THAT(Get(server->port(), "/metricsx"), StartsWith("HTTP/1.1 404"));
}

// Promise: A port that answers stays open.
TEST(PageServerTest, CallersThatSayOrReadNothingDelayNobody) {
  const std::string large(8 << 20, 'x');
  const auto server =
      PageServer::Start("127.0.0.1:0", {.time_max = absl::Hours(1)}, [&] { return large; }).value();
  std::vector<Descriptor> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(Connected(server->port()));
  Say(idle[0], "GET /metr");                      // Half a request,
  Say(idle[1], "GET /metrics HTTP/1.1\r\n\r\n");  // an answer that nobody reads,
  Say(idle[2], std::string(100'000, 'g'));        // and far too much of nothing.
  EXPECT_GT(Get(server->port()).size(), large.size());
  EXPECT_EQ(Rest(idle[2]), "");
  Say(idle[0], "ics HTTP/1.1\r\n\r\n");
  EXPECT_GT(Rest(idle[0]).size(), large.size());
}

TEST(PageServerTest, ConnectionsEndInTimeAndTheOldestMakesRoom) {
  const auto brief = PageServer::Start("127.0.0.1:0", {.time_max = absl::Milliseconds(20)}, [] {
                       return "";
                     }).value();
  EXPECT_EQ(Rest(Connected(brief->port())), "") << "closed by the server";
  const auto narrow =
      PageServer::Start("127.0.0.1:0", {.time_max = absl::Hours(1), .connections_max = 2}, [] {
        return "a 1\n";
      }).value();
  const Descriptor oldest = Connected(narrow->port());
  const Descriptor other = Connected(narrow->port());
  EXPECT_THAT(Get(narrow->port()), EndsWith("a 1\n"));
  EXPECT_EQ(Rest(oldest), "");
}

TEST(PageServerTest, AddressesOfIpv6AreServed) {
  const auto loopback = Metrics::Serve("[::1]:0");
  ASSERT_TRUE(loopback.ok()) << loopback.status();
  EXPECT_THAT((*loopback)->endpoint(), StartsWith("[::1]:"));
  const auto wildcard = PageServer::Start("[::]:0", {}, [] { return "a 1\n"; });
  ASSERT_TRUE(wildcard.ok()) << wildcard.status();
  EXPECT_THAT(Get((*wildcard)->port(), "/metrics", "::1"), EndsWith("a 1\n"));
  EXPECT_THAT(Get((*wildcard)->port(), "/metrics", "127.0.0.1"), EndsWith("a 1\n"));
}

TEST(PageServerTest, MetricsOfTheProcessAreOnThePage) {
  const auto metrics = Metrics::Serve("127.0.0.1:0").value();
  const std::string& endpoint = metrics->endpoint();
  const std::string text = Get(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
  EXPECT_THAT(text, HasSubstr("oxbow_build_info{version="));
  EXPECT_THAT(text, HasSubstr("process_resident_memory_bytes"));
  const absl::Status taken = Metrics::Serve(endpoint).status();
  EXPECT_TRUE(absl::IsUnavailable(taken));
  EXPECT_THAT(std::string(taken.message()), HasSubstr(endpoint));
}

}  // namespace
}  // namespace oxbow::telemetry
