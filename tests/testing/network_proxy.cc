// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/network_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"

namespace oxbow::testing {
namespace {

constexpr size_t kBytesMax = 4 << 20;  // Buffered in one direction; more waits in the sender.

absl::Duration Now() { return Clock::Steady().Now(); }

std::optional<sockaddr_in> AddressOf(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (colon == std::string::npos ||
      inet_pton(AF_INET, endpoint.substr(0, colon).c_str(), &address.sin_addr) != 1)
    return std::nullopt;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(endpoint.c_str() + colon + 1)));
  return address;
}

void Prepare(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(socket, F_SETFL, O_NONBLOCK);
}

// Closes with RST instead of FIN.
void CloseHard(int socket) {
  if (socket < 0) return;
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(socket);
}

int ConnectTo(const std::string& endpoint) {
  const std::optional<sockaddr_in> address = AddressOf(endpoint);
  if (!address.has_value()) return -1;
  const int target = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(target, reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0) {
    Prepare(target);
    return target;
  }
  ::close(target);
  return -1;
}

void GarbleAll(const std::string& text, std::string& bytes) {
  for (size_t at = 0; (at = bytes.find(text, at)) != std::string::npos; ++at) bytes[at] ^= 1;
}

// The bytes buffered from one socket to another.
struct Direction {
  struct Piece {
    absl::Duration due;
    std::string bytes;
  };
  std::deque<Piece> pieces;
  size_t held = 0;
  bool ended = false;   // The sender has closed.
  bool passed = false;  // The receiver has been told.

  void Add(std::string bytes, absl::Duration due) {
    held += bytes.size();
    pieces.push_back({due, std::move(bytes)});
  }
};

}  // namespace

class NetworkProxy::Connection {
 public:
  Connection(int client, const std::string& target) : client_(client) {
    if (!target.empty()) Link(target);
  }
  ~Connection() {
    if (client_ >= 0) ::close(client_);
    if (target_ >= 0) ::close(target_);
  }

  bool over() const { return over_; }

  void Reset() {
    CloseHard(std::exchange(client_, -1));
    CloseHard(std::exchange(target_, -1));
    over_ = true;
  }

  void HalfOpen() {
    if (target_ < 0) return;
    ::close(std::exchange(target_, -1));
    forgotten_ = true;
    up_ = down_ = {};
  }

  void AddTo(std::vector<pollfd>& polled) const {
    const auto events = [](const Direction& in, const Direction& out) {
      short wanted = in.held < kBytesMax && !in.ended ? POLLIN : 0;
      if (!out.pieces.empty() && out.pieces.front().due <= Now()) wanted |= POLLOUT;
      return wanted;
    };
    if (client_ >= 0) polled.push_back({client_, events(up_, down_), 0});
    if (target_ >= 0) polled.push_back({target_, events(down_, up_), 0});
  }

  absl::Duration next_due() const {
    absl::Duration due = absl::InfiniteDuration();
    for (const Direction* way : {&up_, &down_}) {
      if (!way->pieces.empty()) due = std::min(due, way->pieces.front().due);
    }
    return due;
  }

  // Moves all bytes that can be moved.
  void Advance(absl::Duration delay, const std::string& garbled) {
    Receive(client_, up_, delay, "");
    if (!forgotten_ && target_ < 0) Greet();
    Receive(target_, down_, delay, garbled);
    if (forgotten_) {
      over_ = over_ || up_.ended;
      up_ = {};  // Dropped silently.
    }
    Send(up_, target_);
    Send(down_, client_);
    if (client_ < 0 || (up_.passed && down_.passed)) over_ = true;
  }

 private:
  void Link(const std::string& target) {
    target_ = ConnectTo(target);
    if (target_ < 0) Reset();
  }

  // "CONNECT host:port HTTP/1.1 ..." up to an empty line.
  void Greet() {
    std::string text;
    for (const Direction::Piece& piece : up_.pieces) text += piece.bytes;
    const size_t end = text.find("\r\n\r\n");
    if (end == std::string::npos) {
      if (up_.ended) Reset();
      return;
    }
    if (!text.starts_with("CONNECT ")) return Reset();
    const size_t space = text.find(' ', 8);
    up_.pieces.clear();
    up_.held = 0;
    if (text.size() > end + 4) up_.Add(text.substr(end + 4), Now());
    Link(text.substr(8, space - 8));
    if (!over_) down_.Add("HTTP/1.1 200 OK\r\n\r\n", Now());
  }

  void Receive(int from, Direction& way, absl::Duration delay, const std::string& garbled) {
    char bytes[64 << 10];
    while (from >= 0 && !way.ended && way.held < kBytesMax) {
      const ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
      if (got > 0) {
        std::string piece(bytes, static_cast<size_t>(got));
        if (!garbled.empty()) GarbleAll(garbled, piece);
        way.Add(std::move(piece), Now() + delay);
      } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return;
      } else if (got == 0) {
        way.ended = true;
      } else {
        return Reset();
      }
    }
  }

  void Send(Direction& way, int to) {
    while (to >= 0 && !way.pieces.empty() && way.pieces.front().due <= Now()) {
      std::string& bytes = way.pieces.front().bytes;
      const ssize_t sent = ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
        return Reset();
      }
      way.held -= static_cast<size_t>(sent);
      if (static_cast<size_t>(sent) < bytes.size()) {
        bytes.erase(0, static_cast<size_t>(sent));
        return;
      }
      way.pieces.pop_front();
    }
    if (to >= 0 && way.ended && way.pieces.empty() && !way.passed) {
      ::shutdown(to, SHUT_WR);
      way.passed = true;
    }
  }

  int client_;
  int target_ = -1;
  bool forgotten_ = false;  // Half open: the target is gone.
  bool over_ = false;
  Direction up_;    // Client to target.
  Direction down_;  // Target to client.
};

absl::StatusOr<std::unique_ptr<NetworkProxy>> NetworkProxy::Start(const std::string& target) {
  if (!target.empty() && !AddressOf(target).has_value())
    return absl::InvalidArgumentError(absl::StrCat("not a numeric host:port: ", target));
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = *AddressOf("127.0.0.1:0");
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 64) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    ::close(listener);
    return absl::UnavailableError(absl::StrCat("cannot listen: ", std::strerror(errno)));
  }
  return std::unique_ptr<NetworkProxy>(
      new NetworkProxy(listener, absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), target));
}

NetworkProxy::NetworkProxy(int listener, std::string endpoint, std::string target)
    : listener_(listener),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      endpoint_(std::move(endpoint)),
      target_(std::move(target)),
      thread_([this] { Loop(); }) {}

NetworkProxy::~NetworkProxy() {
  Do([this] { stopping_ = true; });
  thread_.join();
  ::close(listener_);
  ::close(wake_);
}

void NetworkProxy::Do(std::function<void()> change) {
  absl::MutexLock lock(&mutex_);
  changes_.push_back(std::move(change));
  const uint64_t number = ++changes_asked_;
  const uint64_t one = 1;
  OXBOW_CHECK(::write(wake_, &one, sizeof one) == sizeof one) << "eventfd";
  const auto made = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return changes_made_ >= number; };
  mutex_.Await(absl::Condition(&made));
}

void NetworkProxy::Delay(absl::Duration each_way) {
  Do([this, each_way] { delay_ = each_way; });
}

void NetworkProxy::Drop() {
  Do([this] { dropping_ = true; });
}

void NetworkProxy::Reset() {
  Do([this] {
    refusing_ = true;
    for (const auto& connection : connections_) connection->Reset();
  });
}

void NetworkProxy::HalfOpen() {
  Do([this] {
    for (const auto& connection : connections_) connection->HalfOpen();
  });
}

void NetworkProxy::Garble(std::string text) {
  OXBOW_CHECK(!text.empty()) << "text to garble";
  Do([this, text = std::move(text)] { garbled_ = text; });
}

void NetworkProxy::Heal() {
  Do([this] {
    garbled_.clear();
    dropping_ = refusing_ = false;
    delay_ = absl::ZeroDuration();
  });
}

uint64_t NetworkProxy::connections() const {
  absl::MutexLock lock(&mutex_);
  return accepted_;
}

void NetworkProxy::RunChanges() {
  uint64_t count;
  while (::read(wake_, &count, sizeof count) > 0) {
  }
  std::vector<std::function<void()>> changes;
  {
    absl::MutexLock lock(&mutex_);
    changes.swap(changes_);
  }
  for (const auto& change : changes) change();
  absl::MutexLock lock(&mutex_);
  changes_made_ += changes.size();
}

void NetworkProxy::AcceptAll() {
  while (true) {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    if (refusing_) {
      CloseHard(client);
      continue;
    }
    Prepare(client);
    connections_.push_back(std::make_unique<Connection>(client, target_));
    absl::MutexLock lock(&mutex_);
    ++accepted_;
  }
}

void NetworkProxy::Loop() {
  while (!stopping_) {
    std::vector<pollfd> polled = {{wake_, POLLIN, 0}};
    absl::Duration due = absl::InfiniteDuration();
    if (!dropping_) {
      polled.push_back({listener_, POLLIN, 0});
      for (const auto& connection : connections_) {
        connection->AddTo(polled);
        due = std::min(due, connection->next_due());
      }
    }
    int timeout = -1;
    if (due != absl::InfiniteDuration() && due > Now())
      timeout = static_cast<int>(absl::ToInt64Milliseconds(due - Now())) + 1;
    ::poll(polled.data(), polled.size(), timeout);
    RunChanges();
    if (dropping_) continue;
    AcceptAll();
    for (const auto& connection : connections_) connection->Advance(delay_, garbled_);
    std::erase_if(connections_, [](const auto& connection) { return connection->over(); });
  }
}

}  // namespace oxbow::testing
