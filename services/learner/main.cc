// learner: coordinates a run and trains its policy, until the last step or SIGTERM.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <string>

#include "base/freed_memory.h"
#include "config/run_config.h"
#include "rpc/service_main.h"
#include "services/learner/learner_run.h"

namespace {

struct Flags {
  oxbow::rpc::ServiceFlags service;
  std::string config;
  oxbow::learner::RunOptions run;
  std::string directory;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--config", flags.config, "resolved config of the run")->required();
  app.add_option("--run-dir", flags.directory, "where the run is written")->required();
  app.add_option("--buffer", flags.run.buffer_endpoints, "replay buffer shards, host:port")
      ->delimiter(',');
  app.add_option("--reward", flags.run.reward_endpoints, "reward servers, host:port")
      ->delimiter(',')
      ->required();
  oxbow::rpc::AddListenFlag(app, flags.service, "services");
  app.add_flag("--resume", flags.run.resume, "go on from the newest checkpoint");
}

absl::Status Run(Flags& flags) {
  absl::StatusOr<oxbow::v1::RunConfig> config = oxbow::config::LoadResolved(flags.config);
  if (!config.ok()) return config.status();
  flags.run.config = *std::move(config);
  flags.run.directory = flags.directory;
  flags.run.listen = flags.service.listen;
  flags.run.metrics_listen = flags.service.metrics_listen;
  // More threads are slower for models of this size, and one is repeatable.
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  return oxbow::learner::RunLearner(flags.run);
}

}  // namespace

int main(int argc, char** argv) {
  oxbow::KeepFreedMemory();
  Flags flags;
  return oxbow::rpc::RunService(
      "learner", "Coordinates rollout workers and trains the policy of one run.", argc, argv,
      flags.service, [&](CLI::App& app) { AddFlags(app, flags); }, [&] { return Run(flags); });
}
