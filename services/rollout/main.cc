// SPDX-License-Identifier: Apache-2.0
// rollout_worker --learner host:port: samples groups of trajectories until the run is complete, or
// SIGTERM.
#include <ATen/Parallel.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/memory_limits.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "core/model/device.h"
#include "rpc/server.h"
#include "rpc/service_main.h"
#include "services/rollout/gpu_processes.h"
#include "services/rollout/local_weights.h"
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
  bool offload_weights = false;
  std::string gpus;
  std::string lent_base;
  std::string model;
  int threads = 1;
  std::string give_up_after = "30m";
  uint64_t conditioning_mib = LimitOf(kConditioningShare) >> 20;
};

// Nothing for a text that is no duration; 0 means never.
std::optional<absl::Duration> GiveUpAfter(const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration()) return std::nullopt;
  return duration == absl::ZeroDuration() ? absl::InfiniteDuration() : duration;
}

void AddFlags(CLI::App& app, Flags& flags) {
  rpc::AddListenFlag(app, flags.service, "WeightChannel service for other workers");
  app.add_option("--learner", flags.learner, "host:port of the learner; all else comes from there")
      ->required();
  app.add_option("--id", flags.id,
                 "name of this worker, unique in the run (default: host, process id and a random "
                 "number)");
  CLI::Option* const device =
      app.add_option("--device", flags.device, "where the model runs: cpu, cuda or cuda:N")
          ->capture_default_str();
  app.add_option("--gpus", flags.gpus,
                 "one process on each of these GPUs: all, or numbers such as 0,1")
      ->excludes(device);
  app.add_flag(
      "--offload-weights", flags.offload_weights,
      "keep what does not train in host memory and bring it to the GPU block by block: for "
      "a GPU that does not hold the model");
  app.add_option("--lent-base", flags.lent_base,
                 "given by oxbow train: where a learner rank on this worker's GPU says that both "
                 "have the base weights of a LoRA there once");
  app.add_option("--model", flags.model,
                 "the run's model directory, if it is on this machine: weights that are as the "
                 "learner's are not fetched");
  flags.gpu_slot = ReadSlurmTask(FromEnvironment).index;
  app.add_option(
         "--gpu-slot", flags.gpu_slot,
         "with --device cuda: number among the processes of this machine that share its GPUs")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "threads of the numerics library")
      ->check(CLI::Range(1, 256));
  app.add_option("--conditioning-mib", flags.conditioning_mib,
                 "MiB of prompts' conditioning that are kept for later groups and other workers; "
                 "default: a share of the memory")
      ->check(CLI::Range(0, 1 << 20));
  const auto is_duration = [](const std::string& text) {
    return GiveUpAfter(text).has_value() ? std::string()
                                         : "must be a duration such as 90s, 30m or 2h: " + text;
  };
  app.add_option("--give-up-after", flags.give_up_after,
                 "end with exit code 3 when the learner was away for this long; 0: never")
      ->check(CLI::Validator(is_duration, "DURATION"));
}

// Containers that share their host's network share its name, and each is its own process 1.
std::string DefaultId(const std::string& host) {
  return absl::StrFormat("%s-%d-%08x", host, ::getpid(), std::random_device()());
}

absl::Status ServeGpus(const Flags& flags, const std::vector<std::string>& arguments) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<int> gpus,
                         GpusOf(flags.gpus, model::GpuCount(), ReadSlurmTask(FromEnvironment)));
  ShareMemoryAmong(gpus.size());
  std::vector<GpuProcess> processes;
  for (const int gpu : gpus) {
    const int index = static_cast<int>(processes.size());
    processes.push_back(
        {.name = absl::StrCat("cuda:", gpu), .arguments = ArgumentsOfGpu(arguments, gpu, index)});
  }
  return RunOnGpus(processes, Clock::Steady());
}

absl::Status Serve(const Flags& flags) {
  if (!flags.id.empty()) OXBOW_RETURN_IF_ERROR(CheckWorkerId(flags.id));
  at::set_num_threads(flags.threads);
  at::set_num_interop_threads(1);
  OXBOW_ASSIGN_OR_RETURN(
      const at::Device device,
      model::DeviceNamed(flags.device, flags.gpu_slot % std::max(1, model::GpuCount())));
  if (const std::string text = model::MissingKernelsText(device); !text.empty()) {
    OXBOW_LOG(Warning) << text;
  }
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::Metrics> metrics,
                         telemetry::Metrics::Serve(flags.service.metrics_listen));
  RolloutMetrics rollout_metrics(metrics->registry());
  weights::FollowMetrics follow_metrics(metrics->registry());
  // Created before the worker, whose threads give it chunks, and destroyed after it.
  OXBOW_ASSIGN_OR_RETURN(
      const std::unique_ptr<weights::WeightRelay> relay,
      weights::WeightRelay::Start(
          {.listen = flags.service.listen, .content_bytes_max = flags.conditioning_mib << 20},
          follow_metrics));
  std::unique_ptr<LocalWeights> local_weights;
  if (!flags.model.empty()) {
    OXBOW_ASSIGN_OR_RETURN(local_weights, LocalWeights::Open(flags.model));
  }
  const std::string host = HostName();
  Worker worker({.learner = flags.learner,
                 .worker_id = flags.id.empty() ? DefaultId(host) : flags.id,
                 .host = host,
                 .device = device,
                 .offload_weights = flags.offload_weights,
                 .lent_base = flags.lent_base,
                 .give_up_after = GiveUpAfter(flags.give_up_after).value(),
                 .relay = relay.get(),
                 .join_broadcast_group = weights::JoinOverRanks({.device = device.str()}),
                 .local_weights = local_weights.get()},
                rollout_metrics, follow_metrics, Clock::Steady());
  LogMemoryLimits({{"conditioning", flags.conditioning_mib << 20}, {"grpc", LimitOf(kGrpcShare)}});
  rpc::AnnounceReady("rollout_worker", relay->endpoint(), metrics->endpoint());
  absl::Status status;
  // Run may return by itself; this thread must then get a signal of its own.
  std::thread runner([&] {
    status = worker.Run();
    ::kill(::getpid(), SIGTERM);
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
      [&] {
        return flags.gpus.empty() ? oxbow::rollout::Serve(flags)
                                  : oxbow::rollout::ServeGpus(flags, {argv + 1, argv + argc});
      });
}
