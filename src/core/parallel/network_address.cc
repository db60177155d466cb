// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/network_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::parallel {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<Addresses> Resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot resolve the address of rank 0: ", host, ": ", gai_strerror(error)));
  }
  return Addresses(found, freeaddrinfo);
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

void SetPort(sockaddr* address, int port) {
  const auto wire = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET) reinterpret_cast<sockaddr_in*>(address)->sin_port = wire;
  if (address->sa_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(address)->sin6_port = wire;
}

int PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
}

}  // namespace

absl::StatusOr<Listening> ListenFor(const std::string& host, int port) {
  OXBOW_ASSIGN_OR_RETURN(const Addresses found, Resolve(host));
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  if (!IsLoopback(found->ai_addr)) {
    // The name may stand for an address that is not this machine's own, as behind a service.
    const int family = found->ai_family;
    address = {};
    address.ss_family = static_cast<sa_family_t>(family);
  }
  SetPort(reinterpret_cast<sockaddr*>(&address), port);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  socklen_t length = found->ai_addrlen;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const std::string why = std::strerror(errno);
    if (fd >= 0) close(fd);
    return absl::UnavailableError(
        absl::StrCat("cannot listen for ranks at ", host, ":", port, ": ", why));
  }
  return Listening{.socket = fd, .port = PortOf(address)};
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host) {
  OXBOW_ASSIGN_OR_RETURN(const Addresses found, Resolve(host));
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  // Connecting a datagram socket sends nothing; it only chooses the route. Any port will do.
  SetPort(reinterpret_cast<sockaddr*>(&address), 9);
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  socklen_t length = found->ai_addrlen;
  char text[NI_MAXHOST];
  const bool known = fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
                     getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text, sizeof(text),
                                 nullptr, 0, NI_NUMERICHOST) == 0;
  if (fd >= 0) close(fd);
  if (!known) return absl::UnavailableError(absl::StrCat("no route to rank 0: ", host));
  return std::string(text);
}

}  // namespace oxbow::parallel
