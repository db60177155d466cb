// SPDX-License-Identifier: Apache-2.0
#include "cli/report/watch_server.h"

#include <httplib.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/report/live_page.h"
#include "cli/report/run_summary.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "io/evaluation_file.h"
#include "io/report/sheets.h"
#include "io/report/sprite.h"
#include "rpc/channel.h"
#include "rpc/tls_flags.h"
#include "run/run_lock.h"

namespace oxbow::cli {

namespace {

struct WatchFlags {
  std::string run_dir;
  std::string host = "127.0.0.1";
  int port = 8080;
  rpc::TlsOptions tls;
};

absl::Status Watch(const WatchFlags& flags) {
  const absl::Status tls = rpc::UseTls(TlsOfRun(flags.tls, flags.run_dir)).status();
  if (run::IsLive(flags.run_dir)) OXBOW_RETURN_IF_ERROR(tls);  // Else nobody is called.
  const rpc::GrpcHold hold;
  // Before the server's threads begin, so that they do not take the signals.
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, number);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  ReplayShelf shelf(flags.run_dir);
  OXBOW_ASSIGN_OR_RETURN(
      const std::unique_ptr<WatchServer> server,
      WatchServer::Start(
          {.page = {.run_dir = flags.run_dir, .replay = [&shelf] { return shelf.Section(); }},
           .replay_picture = [&shelf](const std::string& name) { return shelf.Picture(name); },
           .host = flags.host,
           .port = flags.port}));
  std::cout << "http://" << flags.host << ":" << server->port() << "/  (Ctrl-C ends)" << std::endl;
  int number = 0;
  sigwait(&ends, &number);
  return absl::OkStatus();
}

constexpr uint64_t kPictureBytesMax = 64 << 20;
constexpr int kThreads = 4;
// The page loads nothing from elsewhere, whatever a prompt says.
constexpr char kPolicy[] =
    "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'";

io::SpriteSize SizeNamed(std::string_view name) {
  for (const auto size : {io::SpriteSize::kSmall, io::SpriteSize::kMiddle}) {
    if (name == io::SpriteName(size)) return size;
  }
  return io::SpriteSize::kLarge;
}

// A picture that stays as it is.
void Show(const std::string& name, const std::string& bytes, httplib::Response& response) {
  response.set_header("Cache-Control", "max-age=3600");
  response.set_content(bytes, name.ends_with(".jpg") ? "image/jpeg" : "image/png");
}

void NotFound(httplib::Response& response, const std::string& why) {
  response.status = 404;
  response.set_content(why + "\n", "text/plain");
}

}  // namespace

struct WatchServer::Http {
  httplib::Server server;
  int port = 0;
  std::thread thread;
};

WatchServer::WatchServer(Options options)
    : options_(std::move(options)), page_(options_.page), http_(std::make_unique<Http>()) {}

WatchServer::~WatchServer() {
  http_->server.stop();
  if (http_->thread.joinable()) http_->thread.join();
}

int WatchServer::port() const { return http_->port; }

absl::StatusOr<std::unique_ptr<WatchServer>> WatchServer::Start(Options options) {
  OXBOW_RETURN_IF_ERROR(FindRun(options.page.run_dir));
  auto server = std::unique_ptr<WatchServer>(new WatchServer(std::move(options)));
  const Options& own = server->options_;
  Http& http = *server->http_;
  http.server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  // Without the library's SO_REUSEPORT: two pages on one port are a mistake.
  http.server.set_socket_options([](int socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  http.server.set_default_headers({{"Content-Security-Policy", kPolicy},
                                   {"X-Content-Type-Options", "nosniff"},
                                   {"Cache-Control", "no-store"}});
  server->AddRoutes();
  http.port = own.port == 0 ? http.server.bind_to_any_port(own.host.c_str())
              : http.server.bind_to_port(own.host.c_str(), own.port) ? own.port
                                                                     : -1;
  if (http.port <= 0) {
    return absl::UnavailableError(absl::StrCat(
        "the port is taken, or not ours to take (--port 0 takes a free one): ", own.host, ":",
        own.port));
  }
  http.thread = std::thread([&http] { http.server.listen_after_bind(); });
  // Before it runs, a stop is not heard.
  while (!http.server.is_running()) std::this_thread::yield();
  return server;
}

void WatchServer::AddRoutes() {
  httplib::Server& server = http_->server;
  server.Get("/", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(page_.Document(), "text/html; charset=utf-8");
  });
  server.Get("/state.json", [this](const httplib::Request& request, httplib::Response& response) {
    const auto state = page_.NewSince(request.get_param_value("have"));
    if (state) {
      response.set_content(*state, "application/json");
    } else {
      response.status = 204;
    }
  });
  server.Get(R"(/sheets/(\d+)/(small|middle|large))",
             [this](const httplib::Request& request, httplib::Response& response) {
               int64_t step = 0;
               if (!absl::SimpleAtoi(std::string(request.matches[1]), &step)) {
                 return NotFound(response, "no such sheet");
               }
               const std::optional<io::Sheet> found = io::SheetAt(options_.page.run_dir, step);
               if (!found) return NotFound(response, "no such sheet");
               const io::Sprite sprite = io::SpriteOf(*found, SizeNamed(request.matches[2].str()));
               if (sprite.bytes.empty()) return NotFound(response, "the pictures cannot be read");
               response.set_header("Cache-Control", "max-age=3600");
               response.set_content(sprite.bytes, sprite.type.c_str());
             });
  server.Get(R"(/samples/(step_\d+)/([\w.]+))", [this](const httplib::Request& request,
                                                       httplib::Response& response) {
    const std::string name = request.matches[2];
    if (name != "eval.png" && !io::IsPictureName(name)) {
      return NotFound(response, "no such picture");
    }
    const auto bytes = ReadFile(options_.page.run_dir / "samples" / request.matches[1].str() / name,
                                kPictureBytesMax);
    if (!bytes.ok()) return NotFound(response, "no such picture");
    Show(name, *bytes, response);
  });
  server.Get(R"(/replay/(\d+\.\w+))", [this](const httplib::Request& request,
                                             httplib::Response& response) {
    const std::string name = request.matches[1];
    const std::string bytes = options_.replay_picture ? options_.replay_picture(name) : "";
    if (bytes.empty()) return NotFound(response, "no such picture");
    Show(name, bytes, response);
  });
}

void AddWatch(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<WatchFlags>();  // Lives as long as the callback below.
  CLI::App* const command =
      app.add_subcommand("watch", "Serve the page of a run, which follows it while it goes on");
  command->footer(
      "There is no password: with --host other than the loopback address everybody who reaches the "
      "port\nsees the run. Over SSH: ssh -L 8080:127.0.0.1:8080 MACHINE\n"
      "Example: oxbow watch runs/digits --port 8080");
  AddRunDirectory(*command, flags->run_dir)->required();
  command->add_option("--port", flags->port, "0: any that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--host", flags->host, "address to listen on")->capture_default_str();
  rpc::AddTlsFlags(*command, flags->tls);
  command->callback([flags, &exit_code] { exit_code = Ended("watch", Watch(*flags)); });
}

}  // namespace oxbow::cli
