// SPDX-License-Identifier: Apache-2.0
#include "cli/report/watch_server.h"

#include <httplib.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/replay/replay_source.h"
#include "cli/report/run_summary.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "io/evaluation_file.h"
#include "io/image.h"
#include "io/picture_file.h"
#include "io/report/gallery.h"
#include "io/report/html.h"
#include "io/report/sheets.h"
#include "io/report/svg_chart.h"
#include "rpc/channel.h"
#include "rpc/tls_flags.h"
#include "run/run_lock.h"
#include "services/learner/record/facts_of_run.h"

namespace oxbow::cli {

namespace {

constexpr uint64_t kEntriesShown = 12;
constexpr absl::Duration kLookEvery = absl::Seconds(10);
constexpr absl::Duration kCall = absl::Seconds(5);
constexpr char kTable[] = "best";

std::string Counted(uint64_t count, const std::string& unit) {
  return absl::StrCat(count, " ", unit, count == 1 ? "" : "s");
}

namespace fs = std::filesystem;

// After a building that took very long, say on a busy machine, the page is old for no longer.
constexpr absl::Duration kRestMax = absl::Seconds(30);

// Pictures that cannot be decoded are found when the browser asks: they have a cross then.
io::SheetImage SheetAddress(const io::Sheet& sheet, io::SpriteSize size) {
  return {absl::StrCat("sheets/", sheet.step, "/", io::SpriteName(size)), {}};
}

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

LivePage::LivePage(Options options)
    : options_(std::move(options)),
      epoch_(absl::ToUnixMicros(absl::Now())),
      run_(options_.run_dir),
      rests_until_(options_.clock->Now()) {}

std::string LivePage::Document() {
  absl::MutexLock lock(&mutex_);
  Refresh();
  std::vector<io::PageSection> parts;
  for (const Standing& one : parts_) parts.push_back(one.part);
  return io::Page(absl::StrCat("oxbow run ", io::RunName(options_.run_dir)), io::JoinParts(parts),
                  {.how = io::Reload::kFromServer, .version = VersionOf(buildings_)});
}

std::optional<std::string> LivePage::NewSince(const std::string& have) {
  absl::MutexLock lock(&mutex_);
  Refresh();
  if (have == VersionOf(buildings_)) return std::nullopt;
  const absl::Duration begun = options_.clock->Now();
  const std::string own = absl::StrCat(epoch_, "-");
  uint64_t known = 0;
  if (!have.starts_with(own) || !absl::SimpleAtoi(have.substr(own.size()), &known)) known = 0;
  nlohmann::json state = {{"version", VersionOf(buildings_)},
                          {"order", nlohmann::json::array()},
                          {"parts", nlohmann::json::object()}};
  for (const Standing& one : parts_) {
    state["order"].push_back(one.part.id);
    if (one.changed > known) state["parts"][one.part.id] = one.part.html;
  }
  std::string text = JsonText(state);
  RestAfter(options_.clock->Now() - begun);
  return text;
}

std::string LivePage::VersionOf(uint64_t building) const {
  return absl::StrCat(epoch_, "-", building);
}

std::string LivePage::Stamp() const {
  std::error_code none;
  const auto bytes = fs::file_size(options_.run_dir / io::kMetricsFile, none);
  const auto when = fs::last_write_time(options_.run_dir / io::kMetricsFile, none);
  const auto sheets = fs::last_write_time(options_.run_dir / "samples", none);
  return absl::StrCat(none ? 0 : bytes, "-", when.time_since_epoch().count(), "-",
                      sheets.time_since_epoch().count(), "-",
                      run::IsLive(options_.run_dir) ? "live" : "ended");
}

void LivePage::Refresh() {
  const std::string stamp = Stamp();
  const absl::Duration begun = options_.clock->Now();
  if (stamp == stamp_ || (buildings_ > 0 && begun < rests_until_)) return;
  stamp_ = stamp;
  Build();
  // The first one reads all that there is; those after it, what is new.
  if (buildings_ > 1) RestAfter(options_.clock->Now() - begun);
}

void LivePage::RestAfter(absl::Duration spent) {
  if (options_.share_max <= 0) return;
  const absl::Duration now = options_.clock->Now();
  rests_until_ = std::min(std::max(rests_until_, now) + spent / options_.share_max, now + kRestMax);
}

void LivePage::Build() {
  const absl::Status read = run_.Update();
  const io::RunFacts facts =
      learner::FactsOfRun(options_.run_dir, run::IsLive(options_.run_dir), &run_.sheets());
  std::vector<io::PageSection> parts;
  if (read.ok()) {
    parts = io::ReportParts(options_.run_dir, run_, facts, SheetAddress);
  } else {  // A run that has only begun has no metrics yet.
    parts = {{"head", absl::StrCat("<h1>", io::EscapeHtml(facts.name), "</h1><p class=\"lead\">",
                                   io::EscapeHtml(std::string(read.message())), "</p>")}};
  }
  if (options_.replay) {
    if (std::string html = options_.replay(); !html.empty()) {
      parts.push_back({"replay", std::move(html)});
    }
  }
  ++buildings_;
  std::vector<Standing> standing;
  for (io::PageSection& part : parts) {
    const auto before = std::find_if(parts_.begin(), parts_.end(), [&](const Standing& one) {
      return one.part.id == part.id && one.part.html == part.html;
    });
    standing.push_back({std::move(part), before == parts_.end() ? buildings_ : before->changed});
  }
  parts_ = std::move(standing);
}

std::string ReplayShelf::Section() {
  absl::MutexLock lock(&mutex_);
  const absl::Duration now = clock_.Now();
  if (now < next_) return section_;
  next_ = now + kLookEvery;
  if (!Look().ok()) section_.clear();
  return section_;
}

std::string ReplayShelf::Picture(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [_, kept] : pictures_) {
    if (kept.file == name) return kept.bytes;
  }
  return "";
}

absl::Status ReplayShelf::Look() {
  OXBOW_ASSIGN_OR_RETURN(
      const Looked looked,
      cli::Look({.buffer = {}, .data = {}, .run_dir = run_dir_, .config = {}}, kCall));
  OXBOW_ASSIGN_OR_RETURN(TopRows top, TopRows::By("reward", false, kEntriesShown));
  OXBOW_RETURN_IF_ERROR(AddRows(looked, kTable, top));
  const uint64_t seen = top.seen();
  section_.clear();
  if (seen == 0) return absl::OkStatus();
  const std::vector<ReplayRow> rows = std::move(top).Take();
  std::map<uint64_t, Kept> held = std::exchange(pictures_, {});
  section_ = absl::StrCat(
      "<h2>Replay buffer</h2><p class=\"lead\">The best of ", seen,
      seen == 1 ? " entry" : " entries",
      ", each with the picture that it was kept for. One with its steps: <code>oxbow replay export "
      "ENTRY ",
      io::EscapeHtml(run_dir_), " --out DIR</code></p><div class=\"cells big\">");
  for (const ReplayRow& row : rows) {
    if (const auto found = held.find(row.entry); found != held.end()) {
      pictures_[row.entry] = std::move(found->second);
    } else if (const auto entry = looked.source().ReadPicture(EntryId(row.entry)); entry.ok()) {
      const std::string& bytes = entry->trajectory().picture();
      if (const auto facts = io::FactsOfPicture(bytes); facts.has_value()) {
        pictures_[row.entry] = {.file = absl::StrCat(row.entry, ".", facts->extension),
                                .width = facts->width,
                                .height = facts->height,
                                .bytes = bytes};
      }
    }
    section_ += EntryHtml(row);
  }
  section_ += "</div>\n";
  return absl::OkStatus();
}

// A row of frames takes the room of two pictures.
std::string ReplayShelf::EntryHtml(const ReplayRow& row) const {
  std::string picture = "<span class=\"kept none\">no picture</span>";
  bool wide = false;
  if (const auto kept = pictures_.find(row.entry); kept != pictures_.end()) {
    const auto& [file, width, height, bytes] = kept->second;
    wide = width > 2 * height;
    const bool tiny = std::max(width, height) < io::kSmallSide;
    picture =
        absl::StrCat("<a class=\"kept", tiny ? " tiny" : "", "\" href=\"replay/", file,
                     "\" target=\"_blank\"><img src=\"replay/", file, "\" width=\"", width,
                     "\" height=\"", height, "\" alt=\"picture of entry ", row.entry, "\"></a>");
  }
  return absl::StrCat("<div class=\"cell", wide ? " row" : "", "\">", picture,
                      io::PromptText(row.prompt), "<b>", io::Number(row.reward),
                      "</b><small class=\"kept\">", Counted(row.age, "step"), " old, used ",
                      Counted(row.uses, "time"), ", entry ", row.entry, "</small></div>");
}

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
