// SPDX-License-Identifier: Apache-2.0
#include "telemetry/page_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace oxbow::telemetry {
namespace {

constexpr size_t kRequestBytesMax = 16 << 10;
constexpr absl::Duration kPause = absl::Milliseconds(100);  // After accept has failed.

}  // namespace

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(const std::string& address,
                                                              const Options& options,
                                                              std::function<std::string()> page) {
  OXBOW_ASSIGN_OR_RETURN(ListeningSockets sockets, Listen(address));
  return std::unique_ptr<PageServer>(new PageServer(std::move(sockets), options, std::move(page)));
}

PageServer::PageServer(ListeningSockets sockets, const Options& options,
                       std::function<std::string()> page)
    : options_(options),
      page_(std::move(page)),
      sockets_(std::move(sockets)),
      ended_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Loop(); }) {}

PageServer::~PageServer() {
  const uint64_t one = 1;
  OXBOW_CHECK(::write(ended_.value, &one, sizeof one) == sizeof one) << "wake the page server";
  thread_.join();
}

void PageServer::Loop() {
  bool accepts = true;
  while (true) {
    std::vector<pollfd> polled = {{.fd = ended_.value, .events = POLLIN, .revents = 0}};
    for (const Descriptor& socket : sockets_.sockets) {
      polled.push_back({.fd = accepts ? socket.value : -1, .events = POLLIN, .revents = 0});
    }
    absl::Duration until = absl::InfiniteDuration();
    if (!accepts) until = Clock::Steady().Now() + kPause;
    for (const Connection& one : connections_) {
      const short events = one.answered ? POLLOUT : POLLIN;
      polled.push_back({.fd = one.socket.value, .events = events, .revents = 0});
      until = std::min(until, one.end);
    }
    int wait_ms = -1;  // For ever.
    if (until != absl::InfiniteDuration()) {
      const absl::Duration left = until - Clock::Steady().Now();
      wait_ms = static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(left) + 1));
    }
    ::poll(polled.data(), polled.size(), wait_ms);
    if (polled[0].revents != 0) return;
    size_t index = 1 + sockets_.sockets.size();
    for (auto one = connections_.begin(); one != connections_.end(); ++index) {
      const bool over =
          Clock::Steady().Now() >= one->end || (polled[index].revents != 0 && !Serve(*one));
      one = over ? connections_.erase(one) : std::next(one);
    }
    accepts = true;
    for (size_t i = 0; i < sockets_.sockets.size(); ++i) {
      if (polled[1 + i].revents != 0) accepts = Accept(sockets_.sockets[i].value) && accepts;
    }
  }
}

// False if no connection can be taken for a while.
bool PageServer::Accept(int socket) {
  Descriptor accepted(::accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.value < 0) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS;
  if (connections_.size() >= options_.connections_max) connections_.pop_front();
  connections_.push_back({.socket = std::move(accepted),
                          .end = Clock::Steady().Now() + options_.time_max,
                          .request = "",
                          .answer = ""});
  return true;
}

// Reads or writes what is possible now. False when the connection is over.
bool PageServer::Serve(Connection& connection) const {
  while (!connection.answered) {
    char bytes[4096];
    const ssize_t count = ::recv(connection.socket.value, bytes, sizeof bytes, 0);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    connection.request.append(bytes, static_cast<size_t>(count));
    if (absl::StrContains(connection.request, "\r\n\r\n")) {
      connection.answer = AnswerTo(connection.request);
      connection.answered = true;
    } else if (connection.request.size() > kRequestBytesMax) {
      return false;
    }
  }
  while (!connection.answer.empty()) {
    const ssize_t count = ::send(connection.socket.value, connection.answer.data(),
                                 connection.answer.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    connection.answer.erase(0, static_cast<size_t>(count));
  }
  return false;
}

std::string PageServer::AnswerTo(const std::string& request) const {
  const std::string line = request.substr(0, request.find("\r\n"));
  const std::string wanted = absl::StrCat("GET ", options_.path);
  const bool known = absl::StartsWith(line, absl::StrCat(wanted, " ")) ||
                     absl::StartsWith(line, absl::StrCat(wanted, "?"));
  const bool root = absl::StartsWith(line, "GET / ");  // For a person with a browser.
  std::string body = absl::StrCat("only ", wanted, " is served\n");
  if (known) body = page_();
  if (root) body = absl::StrCat("<a href=\"", options_.path, "\">", options_.path, "</a>\n");
  return absl::StrCat("HTTP/1.1 ", known || root ? "200 OK" : "404 Not Found", "\r\nContent-Type: ",
                      known  ? options_.content_type
                      : root ? "text/html"
                             : "text/plain",
                      "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace oxbow::telemetry
