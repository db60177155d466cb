// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/replay/replay_rows.h"
#include "cli/replay/replay_source.h"
#include "cli/report/watch_server.h"
#include "cli/run_option.h"
#include "io/report/html.h"
#include "io/report/svg_chart.h"
#include "rpc/channel.h"
#include "rpc/tls_flags.h"
#include "run/run_lock.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kEntriesShown = 12;
constexpr absl::Duration kLookEvery = absl::Seconds(10);
constexpr absl::Duration kCall = absl::Seconds(5);
constexpr char kTable[] = "best";

struct WatchFlags {
  std::string run_dir;
  std::string host = "127.0.0.1";
  int port = 8080;
  rpc::TlsOptions tls;
};

// The best entries of a run's replay buffer as a section of its page. The page's threads share it.
class ReplayShelf {
 public:
  explicit ReplayShelf(std::string run_dir) : run_dir_(std::move(run_dir)) {}

  // Empty for a run without entries, and while its buffer does not answer.
  std::string Section() {
    absl::MutexLock lock(&mutex_);
    const absl::Duration now = Clock::Steady().Now();
    if (now < next_) return section_;
    next_ = now + kLookEvery;
    section_ = Look().value_or("");
    return section_;
  }

 private:
  absl::StatusOr<OpenedReplay> Open() const {
    return OpenReplay({.buffer = {}, .data = {}, .run_dir = run_dir_, .config = {}}, kCall);
  }

  absl::StatusOr<std::string> Look() const {
    OXBOW_ASSIGN_OR_RETURN(const OpenedReplay opened, Open());
    OXBOW_ASSIGN_OR_RETURN(const v1::InfoResponse info, opened.source->Info());
    OXBOW_ASSIGN_OR_RETURN(TopRows top, TopRows::By("reward", false, kEntriesShown));
    for (EntryId after(0);;) {
      OXBOW_ASSIGN_OR_RETURN(const auto page, opened.source->Page(kTable, after));
      if (page.empty()) break;
      for (const v1::ReplayEntry& entry : page) top.Add(RowOf(entry, {.step = info.step()}));
      after = EntryId(page.back().entry_id());
    }
    const uint64_t seen = top.seen();
    if (seen == 0) return "";
    // Entries keep the noisy start of a trajectory: only the model makes a picture of it.
    std::string out = absl::StrCat(
        "<h2>Replay buffer</h2><p class=\"lead\">The best of ", seen,
        " entries. An entry and the picture that it leads to: <code>oxbow replay export ENTRY ",
        io::EscapeHtml(run_dir_),
        " --out DIR</code></p><div class=\"wide\"><table><tr><th>entry</th><th>prompt</th>"
        "<th>reward</th><th>steps old</th><th>used</th></tr>");
    for (const ReplayRow& row : std::move(top).Take()) {
      absl::StrAppend(&out, "<tr><td>", row.entry, "</td><td>", io::EscapeHtml(row.prompt),
                      "</td><td>", io::Number(row.reward), "</td><td>", row.age, "</td><td>",
                      row.uses, "</td></tr>");
    }
    return out + "</table></div>\n";
  }

  const std::string run_dir_;
  absl::Mutex mutex_;
  absl::Duration next_ ABSL_GUARDED_BY(mutex_);
  std::string section_ ABSL_GUARDED_BY(mutex_);
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
           .host = flags.host,
           .port = flags.port}));
  std::cout << "http://" << flags.host << ":" << server->port() << "/  (Ctrl-C ends)" << std::endl;
  int number = 0;
  sigwait(&ends, &number);
  return absl::OkStatus();
}

}  // namespace

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
  command->callback([flags, &exit_code] {
    const absl::Status status = Watch(*flags);
    exit_code = ExitCodeOf(status);
    if (!status.ok()) std::cerr << "oxbow watch: " << status.message() << "\n";
  });
}

}  // namespace oxbow::cli
