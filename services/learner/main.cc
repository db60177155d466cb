// learner: coordinates a run and trains its policy, until the last step or SIGTERM.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "base/exit_code.h"
#include "base/log.h"
#include "config/run_config.h"
#include "rpc/server.h"
#include "services/learner/learner_run.h"

namespace {

struct Flags {
  std::string config;
  oxbow::learner::RunOptions run;
  std::string directory;
  std::string log_level = "info";
  std::string log_format = "text";
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", "learner " OXBOW_VERSION);
  app.add_option("--config", flags.config, "resolved config of the run")->required();
  app.add_option("--run-dir", flags.directory, "where the run is written")->required();
  app.add_option("--buffer", flags.run.buffer_endpoints, "replay buffer shards, host:port")
      ->delimiter(',');
  app.add_option("--reward", flags.run.reward_endpoints, "reward servers, host:port")
      ->delimiter(',')
      ->required();
  app.add_option("--listen", flags.run.listen, "host:port of the services; port 0: any");
  app.add_option("--metrics-listen", flags.run.metrics_listen,
                 "host:port of /metrics; port 0: any");
  app.add_flag("--resume", flags.run.resume, "go on from the newest checkpoint");
  app.add_option("--log-level", flags.log_level)
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_option("--log-format", flags.log_format)->check(CLI::IsMember({"text", "json"}));
}

void ApplyLogFlags(const Flags& flags) {
  using oxbow::LogLevel;
  LogLevel level = LogLevel::kInfo;
  if (flags.log_level == "debug") level = LogLevel::kDebug;
  if (flags.log_level == "warning") level = LogLevel::kWarning;
  if (flags.log_level == "error") level = LogLevel::kError;
  oxbow::ConfigureLog(
      level, flags.log_format == "json" ? oxbow::LogFormat::kJson : oxbow::LogFormat::kText,
      "learner");
}

absl::Status Run(Flags& flags) {
  absl::StatusOr<oxbow::v1::RunConfig> config = oxbow::config::LoadResolved(flags.config);
  if (!config.ok()) return config.status();
  flags.run.config = *std::move(config);
  flags.run.directory = flags.directory;
  // More threads are slower for models of this size, and one is repeatable.
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  return oxbow::learner::RunLearner(flags.run);
}

}  // namespace

int main(int argc, char** argv) {
  oxbow::rpc::BlockStopSignals();
  Flags flags;
  CLI::App app("Coordinates rollout workers and trains the policy of one run.", "learner");
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? oxbow::kExitOk : oxbow::kExitUsage;
  }
  ApplyLogFlags(flags);
  const absl::Status status = Run(flags);
  if (!status.ok()) std::cerr << "learner: " << status.message() << "\n";
  return oxbow::ExitCodeOf(status);
}
