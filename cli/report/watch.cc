// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/report/replay_shelf.h"
#include "cli/report/watch_server.h"
#include "cli/run_option.h"
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
