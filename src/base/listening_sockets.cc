// SPDX-License-Identifier: Apache-2.0
#include "base/listening_sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"

namespace oxbow {
namespace {

constexpr int kBacklog = 1024;
constexpr int kUserTimeoutMs = 10'000;  // Unacknowledged bytes end a connection after this.

struct Addresses {
  ~Addresses() {
    if (first != nullptr) freeaddrinfo(first);
  }
  addrinfo* first = nullptr;
};

// A socket that listens; its value is -1, and `reason` says why, if that cannot be.
Descriptor Listening(const addrinfo& info, int port, bool both, std::string& reason) {
  sockaddr_storage address{};
  std::memcpy(&address, info.ai_addr, info.ai_addrlen);
  // IPv4 and IPv6 have the port at the same place.
  reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(static_cast<uint16_t>(port));
  Descriptor socket(
      ::socket(info.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  const auto set = [&](int level, int name, int value) {
    return ::setsockopt(socket.value, level, name, &value, sizeof value) == 0;
  };
  // Accepted connections inherit the last two.
  const bool made = socket.value >= 0 && set(SOL_SOCKET, SO_REUSEADDR, 1) &&
                    (info.ai_family != AF_INET6 || set(IPPROTO_IPV6, IPV6_V6ONLY, both ? 0 : 1)) &&
                    set(IPPROTO_TCP, TCP_NODELAY, 1) &&
                    set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  if (made &&
      ::bind(socket.value, reinterpret_cast<const sockaddr*>(&address), info.ai_addrlen) == 0 &&
      ::listen(socket.value, kBacklog) == 0) {
    return socket;
  }
  reason = std::strerror(errno);
  return Descriptor();
}

int PortOf(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  OXBOW_CHECK(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0) << "port";
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// Listens on all addresses of a host. Returns no socket, and the reason, if there is none.
std::vector<Descriptor> ListeningOn(const std::string& host, const std::string& port, bool both,
                                    std::string& reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  Addresses found;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found.first); error != 0) {
    reason = gai_strerror(error);
    return {};
  }
  std::vector<Descriptor> sockets;
  for (const addrinfo* info = found.first; info != nullptr; info = info->ai_next) {
    const int wanted = ntohs(reinterpret_cast<const sockaddr_in*>(info->ai_addr)->sin_port);
    const int taken = wanted == 0 && !sockets.empty() ? PortOf(sockets.front().value) : wanted;
    Descriptor socket = Listening(*info, taken, both, reason);
    if (socket.value >= 0) sockets.push_back(std::move(socket));
  }
  return sockets;
}

}  // namespace

absl::StatusOr<ListeningSockets> Listen(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen: not HOST:PORT: ", address));
  }
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const std::string port = address.substr(colon + 1);
  // The resolver takes a service's name, and of a larger number what is left of 16 bits.
  if (uint32_t number = 0; !absl::SimpleAtoi(port, &number) || number > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen: a port is a number from 0 to 65535: ", address));
  }
  const bool wildcard = host == "0.0.0.0" || host == "::";
  std::string reason;
  std::vector<Descriptor> sockets =
      ListeningOn(wildcard ? "::" : std::string(host), port, wildcard, reason);
  if (sockets.empty() && wildcard) sockets = ListeningOn("0.0.0.0", port, false, reason);
  if (sockets.empty()) {
    const bool foreign = reason == std::strerror(EADDRNOTAVAIL);
    return absl::UnavailableError(
        absl::StrCat(foreign ? "cannot listen where this machine has no address: "
                             : "cannot listen (is the port taken?): ",
                     address, ": ", reason));
  }
  const int bound = PortOf(sockets.front().value);
  return ListeningSockets{std::move(sockets), bound};
}

std::string WithBrackets(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return address;
  const std::string host = address.substr(0, colon);
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return address;
  return absl::StrCat("[", host, "]", address.substr(colon));
}

}  // namespace oxbow
