// SPDX-License-Identifier: Apache-2.0
#include "rpc/listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
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
  OXBOW_ASSIGN_OR_RETURN(ListeningSockets sockets, Listen(address));
  return std::unique_ptr<Listener>(new Listener(std::move(sockets)));
}

Listener::Listener(ListeningSockets sockets)
    : sockets_(std::move(sockets)),
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
  if (reserve_.value < 0) reserve_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
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
                     << Field("port", port()) << Field("refused", refused_.load())
                     << Field("limit", DescriptorLimit());
}

}  // namespace oxbow::rpc
