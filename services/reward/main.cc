// SPDX-License-Identifier: Apache-2.0
// reward_server: scores images over gRPC until SIGTERM.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/machine_share.h"
#include "base/memory_limits.h"
#include "base/status_macros.h"
#include "config/run_config.h"
#include "rpc/server.h"
#include "rpc/service_main.h"
#include "rpc/stop_signal.h"
#include "run/rewards.h"
#include "services/reward/reward_service.h"
#include "services/reward/scorer_table.h"
#include "telemetry/metrics.h"

namespace oxbow::reward {
namespace {

struct Flags {
  rpc::ServiceFlags service;
  std::vector<std::string> rewards;
  std::string config;
  int gpu_slot = 0;
  RewardService::Options limits{.queue = {.threads = static_cast<uint32_t>(UsableThreads())}};
  uint32_t batch_wait_ms = 5;
  uint64_t waiting_mib = LimitOf(kWaitingShare) >> 20;
  uint64_t media_mib = LimitOf(kMediaShare) >> 20;
};

void AddFlags(CLI::App& app, Flags& flags) {
  rpc::AddListenFlag(app, flags.service, "Reward service");
  app.add_option("--rewards", flags.rewards,
                 "rewards to serve, separated by commas; default: those of the config that no "
                 "server elsewhere has, or all that need no more than a name")
      ->delimiter(',');
  app.add_option("--config", flags.config, "run YAML; its reward.scorers counts");
  app.add_option("--gpu-slot", flags.gpu_slot,
                 "number of the GPU of this machine for rewards with `device: cuda`")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
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
  app.add_option("--waiting-mib", flags.waiting_mib,
                 "MiB of pixels that wait for one reward; default: a share of the memory")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--media-mib", flags.media_mib,
                 "MiB of pictures and videos of all calls together; further ones are refused as "
                 "busy; default: "
                 "a share of the memory")
      ->check(CLI::Range(1, 1 << 20));
}

// The entries of the rewards to serve.
absl::StatusOr<std::vector<v1::ScorerConfig>> EntriesOf(const Flags& flags) {
  v1::RewardConfig known;
  if (!flags.config.empty()) {
    OXBOW_ASSIGN_OR_RETURN(const config::ResolvedConfig resolved,
                           config::LoadRunConfig(flags.config, {}, config::ProcessEnvironment()));
    known = resolved.config.reward();
  }
  std::vector<std::string> names = flags.rewards;
  if (names.empty()) names = flags.config.empty() ? PlainScorerNames() : run::OwnRewards(known);
  std::vector<v1::ScorerConfig> entries;
  for (const std::string& name : names) {
    entries.push_back(run::ScorerOf(known, name));
    if (entries.back().device() == "cuda") {
      entries.back().set_device(absl::StrCat("cuda:", flags.gpu_slot));
    }
  }
  return entries;
}

RewardService::Options OptionsOf(const Flags& flags) {
  RewardService::Options options = flags.limits;
  options.queue.batch_wait = absl::Milliseconds(flags.batch_wait_ms);
  options.queue.bytes_max = flags.waiting_mib << 20;
  options.media_bytes_max = flags.media_mib << 20;
  // PNG and JPEG files are decoded on these threads.
  options.streams.threads = std::max(2, UsableThreads());
  return options;
}

// Ends the process once a reward computes no more in it. A device that is full may have room again.
class BrokenReward {
 public:
  void Takes(const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    if (!why_.ok()) return;
    why_ = IsOutOfMemory(why) ? ErrorOf(kExitFull, std::string(why.message())) : why;
    ::kill(::getpid(), SIGTERM);
  }
  absl::Status why() const {
    absl::MutexLock lock(&mutex_);
    return why_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

// Serves until a stop signal. Health answers while the rewards load. Objects are declared in the
// order of their use, so that the exposer is destroyed last.
absl::Status Serve(const Flags& flags) {
  rpc::StopSignal stop(kExitOk);
  OXBOW_ASSIGN_OR_RETURN(const std::vector<v1::ScorerConfig> entries, EntriesOf(flags));
  std::vector<std::string> names;
  for (const v1::ScorerConfig& entry : entries) names.push_back(entry.name());
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::Metrics> metrics,
                         telemetry::Metrics::Serve(flags.service.metrics_listen));
  std::optional<ScorerPanel> panel;
  std::optional<RewardMetrics> verbs;
  BrokenReward broken;
  RewardService::Options options = OptionsOf(flags);
  options.broken = [&broken](const absl::Status& why) { broken.Takes(why); };
  RewardService service(std::move(options), names, Clock::Steady());
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                         rpc::Server::Start({.listen = flags.service.listen}, {&service}));
  OXBOW_ASSIGN_OR_RETURN(panel, ScorerPanel::Create(entries));
  for (const auto& scorer : panel->scorers()) {
    OXBOW_LOG(Info) << "serves reward" << Field("reward", scorer->facts().name)
                    << Field("identity", scorer->facts().identity);
  }
  verbs.emplace(metrics->registry(), *panel);
  service.Open(*panel, *verbs);
  LogMemoryLimits({{"media", flags.media_mib << 20},
                   {"waiting", flags.waiting_mib << 20},
                   {"grpc", LimitOf(kGrpcShare)}});
  stop.Serves();
  rpc::AnnounceReady("reward_server", server->endpoint(), metrics->endpoint());
  stop.Wait();
  for (const auto& scorer : panel->scorers()) scorer->Stop();
  server->Shutdown(absl::Seconds(10));
  return broken.why();
}

}  // namespace
}  // namespace oxbow::reward

int main(int argc, char** argv) {
  oxbow::KeepFreedMemory();
  // oneDNN keeps work per shape, and lines of text have any: 914 MiB after 243 pictures, 473 so.
  setenv("LRU_CACHE_CAPACITY", "256", /*overwrite=*/0);  // PyTorch's own.
  setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256", /*overwrite=*/0);
  oxbow::reward::Flags flags;
  return oxbow::rpc::RunService(
      "reward_server", "Scores images for rollout workers and evaluation.", argc, argv,
      flags.service, [&](CLI::App& app) { oxbow::reward::AddFlags(app, flags); },
      [&] { return oxbow::reward::Serve(flags); });
}
