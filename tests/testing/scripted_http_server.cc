// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/scripted_http_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/descriptor.h"
#include "base/listening_sockets.h"

namespace oxbow::testing {
namespace {

// The request of one connection; nullopt if the caller went away.
std::optional<ScriptedHttpServer::Request> ReadRequest(int connection) {
  std::string bytes;
  size_t head = std::string::npos, body = 0;
  while (head == std::string::npos || bytes.size() < head + 4 + body) {
    char piece[65536];
    const ssize_t count = ::recv(connection, piece, sizeof piece, 0);
    if (count <= 0) return std::nullopt;
    bytes.append(piece, static_cast<size_t>(count));
    if (head != std::string::npos) continue;
    head = bytes.find("\r\n\r\n");
    if (head == std::string::npos) continue;
    const std::string lower = absl::AsciiStrToLower(bytes.substr(0, head));
    const size_t length = lower.find("content-length:");
    if (length != std::string::npos) body = std::strtoul(&lower[length + 15], nullptr, 10);
  }
  return ScriptedHttpServer::Request{.head = bytes.substr(0, head), .body = bytes.substr(head + 4)};
}

void SendAll(int connection, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count =
        ::send(connection, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;
    sent += static_cast<size_t>(count);
  }
}

void WaitUntilGone(int connection) {
  char piece[4096];
  while (::recv(connection, piece, sizeof piece, 0) > 0) {
  }
}

}  // namespace

// Accepts, with a thread for each connection, until it is destroyed.
class ScriptedHttpServer::Listener {
 public:
  explicit Listener(std::function<void(int)> serve)
      : serve_(std::move(serve)),
        sockets_(Listen("127.0.0.1:0").value()),
        thread_([this] { Loop(); }) {}
  ~Listener() {
    ending_ = true;
    thread_.join();
    {
      absl::MutexLock lock(&mutex_);
      for (const int connection : open_) ::shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
  }
  int port() const { return sockets_.port; }

 private:
  void Loop() {
    const int socket = sockets_.sockets.front().value;
    while (!ending_) {
      pollfd polled{.fd = socket, .events = POLLIN, .revents = 0};
      if (::poll(&polled, 1, 20) <= 0) continue;
      const int connection = ::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      {
        absl::MutexLock lock(&mutex_);
        open_.insert(connection);
      }
      threads_.emplace_back([this, connection] {
        serve_(connection);
        absl::MutexLock lock(&mutex_);  // Closed under it: its number may be another's at once.
        open_.erase(connection);
        Descriptor closed(connection);
      });
    }
  }

  const std::function<void(int)> serve_;
  const ListeningSockets sockets_;
  std::atomic<bool> ending_ = false;
  absl::Mutex mutex_;
  std::set<int> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;  // The accepting thread's, then the destructor's.
  std::thread thread_;
};

ScriptedHttpServer::ScriptedHttpServer(Script script)
    : script_(std::move(script)),
      listener_(std::make_unique<Listener>([this](int connection) { Serve(connection); })) {}

ScriptedHttpServer::~ScriptedHttpServer() = default;

void ScriptedHttpServer::Serve(int connection) {
  const std::optional<Request> request = ReadRequest(connection);
  if (!request.has_value()) return;
  {
    absl::MutexLock lock(&mutex_);
    requests_.push_back(*request);
  }
  const std::optional<std::string> answer = script_(*request);
  if (answer.has_value()) return SendAll(connection, *answer);
  WaitUntilGone(connection);
}

std::string ScriptedHttpServer::url() const {
  return absl::StrCat("http://127.0.0.1:", listener_->port());
}

std::vector<ScriptedHttpServer::Request> ScriptedHttpServer::requests() const {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

std::string HttpText(int code, const std::string& body, const std::string& headers) {
  return absl::StrCat("HTTP/1.1 ", code, " Text\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\n", headers, "\r\n", body);
}

}  // namespace oxbow::testing
