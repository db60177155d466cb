// SPDX-License-Identifier: Apache-2.0
#include "services/reward/http_front.h"

#include <httplib.h>
#include <sys/socket.h>

#include <cctype>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "services/reward/compute_calls.h"
#include "services/reward/task_threads.h"

namespace oxbow::reward {
namespace {

constexpr char kJson[] = "application/json";

// The library's threads.
class HttpThreads final : public httplib::TaskQueue {
 public:
  explicit HttpThreads(int threads) : threads_(threads) {}
  void enqueue(std::function<void()> task) override { threads_.Add(std::move(task)); }
  void shutdown() override { threads_.Join(); }

 private:
  TaskThreads threads_;
};

void Answer(const HttpReply& reply, httplib::Response& response) {
  response.status = reply.code;
  if (reply.code == 503) response.set_header("Retry-After", "1");
  response.set_content(reply.body, kJson);
}

void Refuse(int code, const char* why, httplib::Response& response) {
  Answer({.code = code, .body = absl::StrCat("{\"detail\": \"", why, "\"}")}, response);
}

// A regular expression that matches this text alone.
std::string Literally(const std::string& text) {
  std::string pattern;
  for (const char c : text)
    absl::StrAppend(&pattern, isalnum(static_cast<unsigned char>(c)) ? "" : "\\",
                    std::string(1, c));
  return pattern;
}

// HOST and PORT of "HOST:PORT" or "[V6]:PORT".
absl::StatusOr<std::pair<std::string, int>> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("an HTTP address is HOST:PORT, got ", address));
  }
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return std::pair(host, port);
}

}  // namespace

class HttpFront::Impl {
 public:
  Impl(const Options& options, const ScorerPanel& panel, RewardService& service,
       RewardMetrics& metrics)
      : options_(options), panel_(panel), calls_(service, metrics, options.items_max) {
    server_.new_task_queue = [threads = options.threads] { return new HttpThreads(threads); };
    server_.set_keep_alive_max_count(1);  // An idle connection would hold a thread.
    server_.set_read_timeout(absl::ToChronoMicroseconds(options.silence_max));
    server_.set_write_timeout(absl::ToChronoMicroseconds(options.silence_max));
    server_.set_payload_max_length(options.body_bytes_max);
    server_.set_socket_options([](int socket) {
      const int yes =
          1;  // Two servers on one port, which the library's default allows, are a mistake.
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    for (const auto& scorer : panel.scorers()) Serve(*scorer);
    server_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          return MayPass(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                            : httplib::Server::HandlerResponse::Handled;
        });
  }

  ~Impl() {
    if (!thread_.joinable()) return;
    calls_.Stop(panel_);
    server_.stop();
    thread_.join();
  }

  absl::StatusOr<int> Listen() {
    absl::StatusOr<std::pair<std::string, int>> address = Split(options_.listen);
    if (!address.ok()) return address.status();
    auto& [host, port] = *address;
    if (port == 0) {
      port = server_.bind_to_any_port(host);
    } else if (!server_.bind_to_port(host, port)) {
      port = -1;
    }
    if (port <= 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot serve HTTP there (is the port in use?): ", options_.listen));
    }
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();  // Else a stop would be missed.
    return port;
  }

 private:
  void Serve(Scorer& scorer) {
    const std::string path = absl::StrCat("/", scorer.facts().name);
    posts_.insert(path + "/compute");
    gets_.insert(path + "/health");
    server_.Get(Literally(path + "/health"),
                [](const httplib::Request&, httplib::Response& response) {
                  Answer({.code = 200, .body = "{\"status\": \"ok\"}"}, response);
                });
    server_.Post(Literally(path + "/compute"),
                 [this, &scorer](const httplib::Request&, httplib::Response& response,
                                 const httplib::ContentReader& reader) {
                   std::string body;
                   if (Read(reader, body, response)) Answer(calls_.Compute(scorer, body), response);
                 });
  }

  // What nobody serves, and bodies of a form that the library would take apart, are not read at
  // all.
  bool MayPass(const httplib::Request& request, httplib::Response& response) const {
    if (request.method == "GET" && gets_.contains(request.path)) return true;
    if (request.method != "POST" || !posts_.contains(request.path)) {
      Refuse(404, "this server has GET /NAME/health and POST /NAME/compute of its rewards",
             response);
      return false;
    }
    if (request.get_header_value("Content-Type").rfind(kJson, 0) != 0) {
      Refuse(415, "the body is application/json", response);
      return false;
    }
    return true;
  }

  // The whole body, however it comes; else an answer.
  bool Read(const httplib::ContentReader& reader, std::string& body,
            httplib::Response& response) const {
    const absl::Duration end = Clock::Steady().Now() + options_.body_time_max;
    bool late = false, large = false;
    const bool whole = reader([&](const char* bytes, size_t count) {
      late = Clock::Steady().Now() > end;
      large = count > options_.body_bytes_max - body.size();
      if (late || large) return false;
      body.append(bytes, count);
      return true;
    });
    if (whole) return true;
    if (large || response.status == 413) {
      Refuse(413, "the request is too large: take a smaller batch_size", response);
    } else {
      Refuse(late ? 408 : 400, late ? "the request took too long" : "the request is cut", response);
    }
    return false;
  }

  const Options options_;
  const ScorerPanel& panel_;
  ComputeCalls calls_;
  std::set<std::string> posts_, gets_;
  httplib::Server server_;
  std::thread thread_;
};

HttpFront::HttpFront(std::unique_ptr<Impl> impl, std::string endpoint)
    : impl_(std::move(impl)), endpoint_(std::move(endpoint)) {}

HttpFront::~HttpFront() = default;

absl::StatusOr<std::unique_ptr<HttpFront>> HttpFront::Start(const Options& options,
                                                            const ScorerPanel& panel,
                                                            RewardService& service,
                                                            RewardMetrics& metrics) {
  auto impl = std::make_unique<Impl>(options, panel, service, metrics);
  const absl::StatusOr<int> port = impl->Listen();
  if (!port.ok()) return port.status();
  std::string endpoint =
      absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", *port);
  return std::unique_ptr<HttpFront>(new HttpFront(std::move(impl), std::move(endpoint)));
}

}  // namespace oxbow::reward
