// rollout_worker --learner host:port: samples groups of trajectories until SIGTERM.
#include <ATen/Parallel.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/server.h"
#include "services/rollout/rollout_metrics.h"
#include "services/rollout/worker.h"
#include "telemetry/metrics.h"

namespace oxbow::rollout {
namespace {

struct Flags {
  std::string learner;
  std::string id;
  std::string metrics_listen = "127.0.0.1:0";
  int threads = 1;
  std::string log_level = "info";
  std::string log_format = "text";
};

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", "rollout_worker " OXBOW_VERSION);
  app.add_option("--learner", flags.learner, "host:port of the learner; all else comes from there")
      ->required();
  app.add_option("--id", flags.id,
                 "name of this worker, unique in the run (default: host and process id)");
  app.add_option("--metrics-listen", flags.metrics_listen, "host:port of /metrics; port 0: any");
  app.add_option("--threads", flags.threads, "threads of the numerics library")
      ->check(CLI::Range(1, 256));
  app.add_option("--log-level", flags.log_level)
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_option("--log-format", flags.log_format)->check(CLI::IsMember({"text", "json"}));
  for (CLI::Option* option : app.get_options()) option->capture_default_str();
}

void ApplyLogFlags(const Flags& flags) {
  LogLevel level = LogLevel::kInfo;
  if (flags.log_level == "debug") level = LogLevel::kDebug;
  if (flags.log_level == "warning") level = LogLevel::kWarning;
  if (flags.log_level == "error") level = LogLevel::kError;
  ConfigureLog(level, flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText,
               "rollout_worker");
}

absl::Status Serve(const Flags& flags) {
  at::set_num_threads(flags.threads);
  at::set_num_interop_threads(1);
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::Metrics> metrics,
                         telemetry::Metrics::Serve(flags.metrics_listen));
  RolloutMetrics rollout_metrics(metrics->registry());
  weights::FollowMetrics follow_metrics(metrics->registry());
  const std::string host = HostName();
  Worker worker({.learner = flags.learner,
                 .worker_id = flags.id.empty() ? absl::StrCat(host, "-", ::getpid()) : flags.id,
                 .host = host},
                rollout_metrics, follow_metrics, Clock::Steady());
  rpc::AnnounceReady("rollout_worker", "-", metrics->endpoint());
  absl::Status status;
  // Run ends by itself only on an error; the signal thread then needs a signal of its own.
  std::thread runner([&] {
    status = worker.Run();
    if (!status.ok()) ::kill(::getpid(), SIGTERM);
  });
  const int signal = rpc::WaitForStopSignal();
  OXBOW_LOG(Info) << "stopping" << Field("signal", signal);
  worker.Stop();
  runner.join();
  return status;
}

}  // namespace
}  // namespace oxbow::rollout

int main(int argc, char** argv) {
  oxbow::rpc::BlockStopSignals();
  oxbow::rollout::Flags flags;
  CLI::App app("Samples trajectories for a learner.", "rollout_worker");
  oxbow::rollout::AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? oxbow::kExitOk : oxbow::kExitUsage;
  }
  oxbow::rollout::ApplyLogFlags(flags);
  const absl::Status status = oxbow::rollout::Serve(flags);
  if (!status.ok()) std::cerr << "rollout_worker: " << status.message() << "\n";
  return oxbow::ExitCodeOf(status);
}
