#include "rpc/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace oxbow::rpc {
namespace {

constexpr int kBacklog = 1024;
constexpr int kUserTimeoutMs = 10'000;  // Unacknowledged bytes end a connection after this.
constexpr int kPauseMs = 100;           // After an error of accept that may last.
constexpr absl::Duration kSayEvery = absl::Minutes(1);

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

uint64_t DescriptorLimit() {
  rlimit limit{};
  OXBOW_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0) << "limit of descriptors";
  return limit.rlim_cur;
}

}  // namespace

uint64_t ConnectionDescriptorsMax(uint64_t limit) {
  return limit - std::min(limit, std::clamp<uint64_t>(limit / 4, 32, 1024));
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return absl::UnavailableError(absl::StrCat("cannot listen: not HOST:PORT: ", address));
  }
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const std::string port = address.substr(colon + 1);
  const bool wildcard = host == "0.0.0.0" || host == "::";
  std::string reason;
  std::vector<Descriptor> sockets =
      ListeningOn(wildcard ? "::" : std::string(host), port, wildcard, reason);
  if (sockets.empty() && wildcard) sockets = ListeningOn("0.0.0.0", port, false, reason);
  if (sockets.empty()) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen (is the port taken?): ", address, ": ", reason));
  }
  const int bound = PortOf(sockets.front().value);
  return std::unique_ptr<Listener>(new Listener(std::move(sockets), bound));
}

Listener::Listener(std::vector<Descriptor> sockets, int port)
    : sockets_(std::move(sockets)),
      port_(port),
      ended_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reserve_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

Listener::~Listener() { Stop(); }

void Listener::Serve(std::unique_ptr<Acceptor> acceptor) {
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { AcceptLoop(); });
}

void Listener::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  OXBOW_CHECK(::write(ended_.value, &one, sizeof one) == sizeof one) << "wake the listener";
  thread_.join();
}

void Listener::AcceptLoop() {
  std::vector<pollfd> polled = {{.fd = ended_.value, .events = POLLIN, .revents = 0}};
  for (const Descriptor& socket : sockets_)
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

// False after an error that may last.
bool Listener::AcceptOne(int socket) {
  Descriptor accepted(::accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
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
  if (error != 0) return true;  // The caller is gone already, or the error is its alone.
  // The lowest free number is given out: all numbers below it are in use.
  const uint64_t in_use = static_cast<uint64_t>(accepted.value);
  if (in_use >= ConnectionDescriptorsMax(DescriptorLimit())) {
    Refuse("too many descriptors are in use");
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
                     << Field("port", port_) << Field("refused", refused_.load())
                     << Field("limit", DescriptorLimit());
}

}  // namespace oxbow::rpc
