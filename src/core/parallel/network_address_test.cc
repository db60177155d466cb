// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/network_address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace oxbow::parallel {
namespace {

// The address a socket is bound to, in host order.
uint32_t BoundAddress(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohl(address.sin_addr.s_addr);
}

TEST(NetworkAddressTest, LocalRanksAreNotReachableFromOutside) {
  const auto listening = ListenFor("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_GT(listening->port, 0);
  EXPECT_EQ(BoundAddress(listening->socket), INADDR_LOOPBACK);
  EXPECT_FALSE(ListenFor("127.0.0.1", listening->port).ok()) << "the port is taken";
  close(listening->socket);
}

TEST(NetworkAddressTest, LoopbackIsReachedFromLoopback) {
  const auto local = LocalAddressTowards("127.0.0.1");
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_EQ(*local, "127.0.0.1");
}

TEST(NetworkAddressTest, UnknownHostIsNamed) {
  const auto listening = ListenFor("no-such-host.invalid", 0);
  EXPECT_TRUE(absl::IsUnavailable(listening.status()));
  EXPECT_NE(listening.status().message().find("no-such-host.invalid"), std::string::npos);
}

}  // namespace
}  // namespace oxbow::parallel
