// reward_server: scores pictures over gRPC until SIGTERM.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/reward/scorer_table.h"
#include "rpc/server.h"
#include "services/reward/reward_service.h"
#include "telemetry/metrics.h"

namespace oxbow::reward {
namespace {

struct Flags {
  std::string listen = "127.0.0.1:0";
  std::string metrics_listen = "127.0.0.1:0";
  std::vector<std::string> rewards = ScorerNames();
  uint32_t batch_max = 64;
  std::string log_level = "info";
  std::string log_format = "text";
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", "reward_server " OXBOW_VERSION);
  app.add_option("--listen", flags.listen, "host:port of the Reward service; port 0: any");
  app.add_option("--metrics-listen", flags.metrics_listen, "host:port of /metrics; port 0: any");
  app.add_option("--rewards", flags.rewards, "rewards to serve, separated by commas")
      ->delimiter(',');
  app.add_option("--batch-max", flags.batch_max, "pictures per request")
      ->check(CLI::Range(1, 4096));
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
               "reward_server");
}

// Serves until a stop signal. Declared in the order of their use, so that the exposer goes last.
absl::Status Serve(const Flags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const ScorerPanel panel, ScorerPanel::Create(flags.rewards));
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::Metrics> metrics,
                         telemetry::Metrics::Serve(flags.metrics_listen));
  RewardMetrics verbs(metrics->registry(), panel);
  RewardService service({.batch_max = flags.batch_max}, panel, verbs, Clock::Steady());
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                         rpc::Server::Start({.listen = flags.listen}, {&service}));
  rpc::AnnounceReady("reward_server", server->endpoint(), metrics->endpoint());
  const int signal = rpc::WaitForStopSignal();
  OXBOW_LOG(Info) << "stopping" << Field("signal", signal);
  server->Shutdown(absl::Seconds(10));
  return absl::OkStatus();
}

}  // namespace
}  // namespace oxbow::reward

int main(int argc, char** argv) {
  oxbow::rpc::BlockStopSignals();
  oxbow::reward::Flags flags;
  CLI::App app("Scores pictures for rollout workers and evaluation.", "reward_server");
  oxbow::reward::AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? oxbow::kExitOk : oxbow::kExitUsage;
  }
  oxbow::reward::ApplyLogFlags(flags);
  const absl::Status status = oxbow::reward::Serve(flags);
  if (!status.ok()) std::cerr << "reward_server: " << status.message() << "\n";
  return oxbow::ExitCodeOf(status);
}
