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
  RewardService::Options limits{
      .queue = {.threads = std::max(1U, std::thread::hardware_concurrency())}};
  uint32_t batch_wait_ms = 5;
  uint32_t waiting_mib = 1024;
};

void AddFlags(CLI::App& app, Flags& flags) {
  rpc::AddListenFlag(app, flags.service, "Reward service");
  app.add_option("--rewards", flags.rewards, "rewards to serve, separated by commas")
      ->delimiter(',');
  app.add_option("--batch-max", flags.limits.batch_max, "images per request")
      ->check(CLI::Range(1, 4096));
  app.add_option("--threads", flags.limits.queue.threads,
                 "batches of one reward scored at a time, where it can; default: cores")
      ->check(CLI::Range(1, 1024));
  app.add_option("--batch-wait-ms", flags.batch_wait_ms,
                 "how long an image waits for others to fill its batch")
      ->check(CLI::Range(0, 60000));
  app.add_option("--waiting-max", flags.limits.queue.items_max,
                 "images that wait for one reward; further ones are refused as busy")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--waiting-mib", flags.waiting_mib, "MiB of pixels that wait for one reward")
      ->check(CLI::Range(1, 1 << 20));
}

// Serves until a stop signal. Objects are declared in the order of their use, so that the exposer
// is destroyed last.
absl::Status Serve(const Flags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const ScorerPanel panel, ScorerPanel::Create(flags.rewards));
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::Metrics> metrics,
                         telemetry::Metrics::Serve(flags.service.metrics_listen));
  RewardMetrics verbs(metrics->registry(), panel);
  RewardService::Options limits = flags.limits;
  limits.queue.batch_wait = absl::Milliseconds(flags.batch_wait_ms);
  limits.queue.bytes_max = uint64_t{flags.waiting_mib} << 20;
  RewardService service(limits, panel, verbs, Clock::Steady());
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
