// SPDX-License-Identifier: Apache-2.0
#include "rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace oxbow::rpc {
namespace {

constexpr int kPauseMs = 100;  // After an error of accept that may last.
constexpr absl::Duration kSayEvery = absl::Minutes(1);
constexpr absl::Duration kHandshakeMax = absl::Seconds(20);  // As the server allows.
constexpr size_t kSourcesKept = 1024;  // Then those without young connections are forgotten.

uint64_t KeptDescriptors(uint64_t limit) {
  return std::min(limit, std::clamp<uint64_t>(limit / 4, 32, 1024));
}

// The bytes of the address: all of IPv4's, the first half of IPv6's.
std::string SourceOf(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(from).sin_addr;
    return std::string(reinterpret_cast<const char*>(&address), sizeof address);
  }
  const auto& address = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
  const char* const bytes = reinterpret_cast<const char*>(&address);
  return IN6_IS_ADDR_V4MAPPED(&address) ? std::string(bytes + 12, 4) : std::string(bytes, 8);
}

// Whether a process of this machine connects to 127.0.0.1 or ::1.
bool IsOwn(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(from).sin_addr.s_addr == htonl(INADDR_LOOPBACK);
  }
  const auto& address = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) && SourceOf(from) == std::string("\x7f\0\0\x01", 4));
}

// 0 if it is no open connection.
uint64_t CookieOf(int descriptor) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

}  // namespace

uint64_t DescriptorLimit() {
  rlimit limit{};
  OXBOW_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0) << "limit of descriptors";
  return limit.rlim_cur;
}

uint64_t ConnectionDescriptorsMax(uint64_t limit) { return limit - KeptDescriptors(limit); }

uint64_t YoungConnectionsMax(uint64_t limit) {
  return std::max<uint64_t>(64, ConnectionDescriptorsMax(limit) / 8);
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const std::string& address) {
  OXBOW_ASSIGN_OR_RETURN(ListeningSockets sockets, Listen(address));
  return std::unique_ptr<Listener>(new Listener(std::move(sockets)));
}

Listener::Listener(ListeningSockets sockets)
    : sockets_(std::move(sockets)),
      ended_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reserve_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

Listener::~Listener() { Stop(); }

void Listener::Serve(std::unique_ptr<Acceptor> acceptor, uint64_t young_max) {
  acceptor_ = std::move(acceptor);
  young_max_ = young_max;
  thread_ = std::thread([this] { AcceptLoop(); });
}

void Listener::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  OXBOW_CHECK(::write(ended_.value, &one, sizeof one) == sizeof one) << "wake the listener";
  thread_.join();
  sockets_.sockets.clear();  // Callers are refused from now on, and do not wait for an answer.
}

void Listener::AcceptLoop() {
  std::vector<pollfd> polled = {{.fd = ended_.value, .events = POLLIN, .revents = 0}};
  for (const Descriptor& socket : sockets_.sockets)
    polled.push_back({.fd = socket.value, .events = POLLIN, .revents = 0});
  bool well = true;
  while (true) {
    // After an error that may last, only the end is waited for.
    const int ready = ::poll(polled.data(), well ? polled.size() : 1, well ? -1 : kPauseMs);
    if (ready > 0 && polled[0].revents != 0) return;
    well = true;
    for (size_t i = 1; ready > 0 && i < polled.size(); ++i) {
      if (polled[i].revents != 0) well = AcceptOne(polled[i].fd) && well;
    }
  }
}

// Those that were closed are young no more. The server may close one at any moment, and another
// gets its number: the cookie tells them apart.
bool Listener::MayEnter(int connection, const sockaddr_storage& from) {
  if (young_max_ == 0) return true;
  const absl::Duration now = Clock::Steady().Now();
  const auto grown = [&](const Young& one) {
    return now - one.since > kHandshakeMax || CookieOf(one.descriptor) != one.cookie;
  };
  if (young_.size() >= kSourcesKept) {
    std::erase_if(young_, [&](auto& source) { return std::ranges::all_of(source.second, grown); });
  }
  std::deque<Young>& young = young_[SourceOf(from)];
  if (young.size() >= young_max_) std::erase_if(young, grown);
  if (young.size() >= young_max_) return false;
  young.push_back({.descriptor = connection, .cookie = CookieOf(connection), .since = now});
  return true;
}

// False after an error that may last.
bool Listener::AcceptOne(int socket) {
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  Descriptor accepted(
      ::accept4(socket, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int error = accepted.value < 0 ? errno : 0;
  if (error == EMFILE || error == ENFILE) {
    { const Descriptor given_up = std::move(reserve_); }
    { const Descriptor refused(::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC)); }
    reserve_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    Refuse("no descriptor is free");
    return reserve_.value >= 0;
  }
  if (error == ENOBUFS || error == ENOMEM) {
    Refuse(std::strerror(error));
    return false;
  }
  if (reserve_.value < 0) reserve_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (error != 0) return true;  // The caller is gone already, or the error is its alone.
  // The lowest free number is given out: all numbers below it are in use.
  const uint64_t in_use = static_cast<uint64_t>(accepted.value);
  const uint64_t limit = DescriptorLimit();
  const uint64_t for_own = IsOwn(from) ? KeptDescriptors(limit) / 2 : 0;
  if (in_use >= ConnectionDescriptorsMax(limit) + for_own) {
    Refuse("too many descriptors are in use");
    return true;
  }
  if (!MayEnter(accepted.value, from)) {
    Refuse("too many new connections of one address");
    return true;
  }
  Acceptor::NewConnectionParameters connection;
  connection.listener_fd = socket;
  connection.fd = std::exchange(accepted.value, -1);  // The server's.
  acceptor_->HandleNewConnection(&connection);
  return true;
}

void Listener::Refuse(const char* reason) {
  ++refused_;
  const absl::Duration now = Clock::Steady().Now();
  if (said_.has_value() && now - *said_ < kSayEvery) return;
  said_ = now;
  OXBOW_LOG(Warning) << "connections are refused" << Field("reason", reason)
                     << Field("port", port()) << Field("refused", refused_.load())
                     << Field("limit", DescriptorLimit());
}

}  // namespace oxbow::rpc
