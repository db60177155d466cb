// reward_server: scores images over gRPC until SIGTERM.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/server.h"
#include "rpc/service_main.h"
#include "services/reward/reward_service.h"
#include "services/reward/scorer_table.h"
#include "telemetry/metrics.h"

namespace oxbow::reward {
namespace {

struct Flags {
  rpc::ServiceFlags service;
  std::vector<std::string> rewards = ScorerNames();
  RewardService::Options limits{.threads = std::max(1U, std::thread::hardware_concurrency())};
};

void AddFlags(CLI::App& app, Flags& flags) {
  rpc::AddListenFlag(app, flags.service, "Reward service");
  app.add_option("--rewards", flags.rewards, "rewards to serve, separated by commas")
      ->delimiter(',');
  app.add_option("--batch-max", flags.limits.batch_max, "images per request")
      ->check(CLI::Range(1, 4096));
  app.add_option("--threads", flags.limits.threads, "requests scored at a time; default: cores")
      ->check(CLI::Range(1, 1024));
  app.add_option("--waiting-max", flags.limits.waiting_max,
                 "requests that wait for a thread; further ones are refused as busy")
      ->check(CLI::Range(1, 65536));
}

// Serves until a stop signal. Objects are declared in the order of their use, so that the exposer
// is destroyed last.
absl::Status Serve(const Flags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const ScorerPanel panel, ScorerPanel::Create(flags.rewards));
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::Metrics> metrics,
                         telemetry::Metrics::Serve(flags.service.metrics_listen));
  RewardMetrics verbs(metrics->registry(), panel);
  RewardService service(flags.limits, panel, verbs, Clock::Steady());
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                         rpc::Server::Start({.listen = flags.service.listen}, {&service}));
  rpc::AnnounceReady("reward_server", server->endpoint(), metrics->endpoint());
  const int signal = rpc::WaitForStopSignal();
  OXBOW_LOG(Info) << "stopping" << Field("signal", signal);
  server->Shutdown(absl::Seconds(10));
  return absl::OkStatus();
}

}  // namespace
}  // namespace oxbow::reward

int main(int argc, char** argv) {
  oxbow::reward::Flags flags;
  return oxbow::rpc::RunService(
      "reward_server", "Scores images for rollout workers and evaluation.", argc, argv,
      flags.service, [&](CLI::App& app) { oxbow::reward::AddFlags(app, flags); },
      [&] { return oxbow::reward::Serve(flags); });
}
