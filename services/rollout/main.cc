// rollout_worker --learner host:port: samples groups of trajectories until SIGTERM.
#include <ATen/Parallel.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/freed_memory.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/model/device.h"
#include "rpc/server.h"
#include "rpc/service_main.h"
#include "services/rollout/rollout_metrics.h"
#include "services/rollout/worker.h"
#include "services/weights/broadcast_group.h"
#include "telemetry/metrics.h"

namespace oxbow::rollout {
namespace {

struct Flags {
  rpc::ServiceFlags service;
  std::string learner;
  std::string id;
  std::string device = "cpu";
  int gpu_slot = 0;
  int threads = 1;
};

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

void AddFlags(CLI::App& app, Flags& flags) {
  rpc::AddListenFlag(app, flags.service, "WeightChannel service for other workers");
  app.add_option("--learner", flags.learner, "host:port of the learner; all else comes from there")
      ->required();
  app.add_option("--id", flags.id,
                 "name of this worker, unique in the run (default: host and process id)");
  app.add_option("--device", flags.device, "where the model runs: cpu, cuda or cuda:N")
      ->capture_default_str();
  app.add_option(
         "--gpu-slot", flags.gpu_slot,
         "with --device cuda: number among the processes of this machine that share its GPUs")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "threads of the numerics library")
      ->check(CLI::Range(1, 256));
}

absl::Status Serve(const Flags& flags) {
  at::set_num_threads(flags.threads);
  at::set_num_interop_threads(1);
  OXBOW_ASSIGN_OR_RETURN(
      const at::Device device,
      model::DeviceNamed(flags.device, flags.gpu_slot % std::max(1, model::GpuCount())));
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::Metrics> metrics,
                         telemetry::Metrics::Serve(flags.service.metrics_listen));
  RolloutMetrics rollout_metrics(metrics->registry());
  weights::FollowMetrics follow_metrics(metrics->registry());
  // Created before the worker, whose threads give it chunks, and destroyed after it.
  OXBOW_ASSIGN_OR_RETURN(
      const std::unique_ptr<weights::WeightRelay> relay,
      weights::WeightRelay::Start({.listen = flags.service.listen}, follow_metrics));
  const std::string host = HostName();
  Worker worker({.learner = flags.learner,
                 .worker_id = flags.id.empty() ? absl::StrCat(host, "-", ::getpid()) : flags.id,
                 .host = host,
                 .device = device,
                 .relay = relay.get(),
                 .join_broadcast_group = weights::JoinOverRanks({.device = device.str()})},
                rollout_metrics, follow_metrics, Clock::Steady());
  rpc::AnnounceReady("rollout_worker", relay->endpoint(), metrics->endpoint());
  absl::Status status;
  // Run returns by itself only on an error; the signal thread must then get a signal of its own.
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
  oxbow::KeepFreedMemory();
  oxbow::rollout::Flags flags;
  return oxbow::rpc::RunService(
      "rollout_worker", "Samples trajectories for a learner.", argc, argv, flags.service,
      [&](CLI::App& app) { oxbow::rollout::AddFlags(app, flags); },
      [&] { return oxbow::rollout::Serve(flags); });
}
