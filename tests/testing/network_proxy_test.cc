// SPDX-License-Identifier: Apache-2.0
// The effects of the proxy on a conversation with an echo server.
#include "tests/testing/network_proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "base/clock.h"

namespace oxbow::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// Sends back what it receives, one connection after another; counts the ended connections.
class Echo {
 public:
  Echo() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] {
      for (int peer; (peer = ::accept(listener_, nullptr, nullptr)) >= 0;) Serve(peer);
    });
  }
  ~Echo() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  const std::string& endpoint() const { return endpoint_; }

  bool AwaitEnded(int count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(10));
  }

 private:
  void Serve(int peer) {
    char bytes[256];
    for (ssize_t got; (got = ::recv(peer, bytes, sizeof bytes, 0)) > 0;)
      ::send(peer, bytes, static_cast<size_t>(got), MSG_NOSIGNAL);
    ::close(peer);
    absl::MutexLock lock(&mutex_);
    ++ended_;
  }

  const int listener_;
  std::string endpoint_;
  absl::Mutex mutex_;
  int ended_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

class Client {
 public:
  explicit Client(const std::string& endpoint)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = Loopback(std::atoi(endpoint.c_str() + endpoint.rfind(':') + 1));
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { ::close(socket_); }

  void Say(const std::string& text) const {
    ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }

  // Returns the next bytes, or "end", "reset", "silence".
  std::string Hear(absl::Duration timeout = absl::Seconds(10)) const {
    const timeval limit = absl::ToTimeval(timeout);
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char bytes[256];
    const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got > 0) return std::string(bytes, static_cast<size_t>(got));
    if (got == 0) return "end";
    return errno == EAGAIN ? "silence" : "reset";
  }

 private:
  const int socket_;
};

constexpr absl::Duration kMoment = absl::Milliseconds(30);

class NetworkProxyTest : public ::testing::Test {
 protected:
  Echo echo_;
  std::unique_ptr<NetworkProxy> proxy_ = NetworkProxy::Start(echo_.endpoint()).value();
};

TEST_F(NetworkProxyTest, PassesBothWaysAndTheEndToo) {
  {
    const Client client(proxy_->endpoint());
    client.Say("hello");
    EXPECT_EQ(client.Hear(), "hello");
  }
  EXPECT_TRUE(echo_.AwaitEnded(1));
  EXPECT_EQ(proxy_->connections(), 1u);
}

TEST_F(NetworkProxyTest, DelayCountsEachWay) {
  proxy_->Delay(kMoment);
  const Client client(proxy_->endpoint());
  const absl::Duration start = Clock::Steady().Now();
  client.Say("slow");
  EXPECT_EQ(client.Hear(), "slow");
  EXPECT_GE(Clock::Steady().Now() - start, 2 * kMoment);
}

TEST_F(NetworkProxyTest, DroppedBytesComeAfterHealing) {
  const Client client(proxy_->endpoint());
  client.Say("one");
  EXPECT_EQ(client.Hear(), "one");
  proxy_->Drop();
  client.Say("two");
  EXPECT_EQ(client.Hear(kMoment), "silence");
  proxy_->Heal();
  EXPECT_EQ(client.Hear(), "two");
}

TEST_F(NetworkProxyTest, GarbledTextArrivesWithAFlippedBitAtTheSameLength) {
  const Client client(proxy_->endpoint());
  proxy_->Garble("name");
  client.Say("a name and a name");
  EXPECT_EQ(client.Hear(), "a oame and a oame") << "on the way back alone";
  proxy_->Heal();
  client.Say("a name");
  EXPECT_EQ(client.Hear(), "a name");
}

TEST_F(NetworkProxyTest, ResetReachesTheClientUntilHealed) {
  const Client client(proxy_->endpoint());
  client.Say("one");
  EXPECT_EQ(client.Hear(), "one");
  proxy_->Reset();
  EXPECT_EQ(client.Hear(), "reset");
  EXPECT_TRUE(echo_.AwaitEnded(1));
  const Client refused(proxy_->endpoint());
  EXPECT_EQ(refused.Hear(), "reset");
  proxy_->Heal();
  const Client healed(proxy_->endpoint());
  healed.Say("again");
  EXPECT_EQ(healed.Hear(), "again");
}

TEST_F(NetworkProxyTest, HalfOpenEndsAtTheTargetAlone) {
  const Client client(proxy_->endpoint());
  client.Say("one");
  EXPECT_EQ(client.Hear(), "one");
  proxy_->HalfOpen();
  EXPECT_TRUE(echo_.AwaitEnded(1));
  client.Say("two");
  EXPECT_EQ(client.Hear(kMoment), "silence");
  const Client other(proxy_->endpoint());
  other.Say("three");
  EXPECT_EQ(other.Hear(), "three") << "new connections pass";
}

TEST(ConnectProxyTest, EachConnectionNamesItsTarget) {
  const Echo echo;
  const auto proxy = NetworkProxy::Start("").value();
  const Client client(proxy->endpoint());
  client.Say("CONNECT " + echo.endpoint() + " HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.Hear(), "HTTP/1.1 200 OK\r\n\r\n");
  client.Say("hello");
  EXPECT_EQ(client.Hear(), "hello");
  const Client nowhere(proxy->endpoint());
  nowhere.Say("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n");
  EXPECT_EQ(nowhere.Hear(), "reset");
}

}  // namespace
}  // namespace oxbow::testing
