// SPDX-License-Identifier: Apache-2.0
// learner: coordinates a run and trains its policy, until the last step or SIGTERM.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/memory_limits.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "config/memory_parts.h"
#include "config/run_config.h"
#include "core/model/device.h"
#include "core/model/device_memory.h"
#include "core/parallel/rank_environment.h"
#include "rpc/channel.h"
#include "rpc/service_main.h"
#include "rpc/stop_signal.h"
#include "services/learner/learner_run.h"
#include "services/learner/ranks/local_ranks.h"

namespace {

using oxbow::learner::LocalRanks;

// Ranks load models before they meet, and machines differ: they wait so many times as long as they
// do for a rank that is silent later.
constexpr int kJoinTimeouts = 10;

struct Flags {
  oxbow::rpc::ServiceFlags service;
  std::string config;
  oxbow::learner::RunOptions run;
  std::string directory;
  uint32_t ranks = 0;             // 0: learner.ranks of the config.
  std::vector<std::string> argv;  // Arguments for starting more ranks.
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--config", flags.config, "resolved config of the run")->required();
  app.add_option("--run-dir", flags.directory, "where the run is written")->required();
  app.add_option("--buffer", flags.run.buffer_endpoints, "replay buffer shards, host:port")
      ->delimiter(',');
  app.add_option("--take-buffer", flags.run.take_buffer,
                 "take the replay buffer from the run with this uid; its entries are set aside");
  app.add_option("--reward", flags.run.reward_endpoints, "reward servers, host:port")
      ->delimiter(',')
      ->required();
  oxbow::rpc::AddListenFlag(app, flags.service, "services");
  app.add_option("--ranks", flags.ranks,
                 "ranks to train with, all on this machine; wins over learner.ranks");
  app.add_flag("--resume", flags.run.resume, "go on from the newest checkpoint, if there is one");
  app.add_flag("--beside-copies", flags.run.beside_copies,
               "begin another run although checkpoint.copy_to has copies of one of its name");
  app.add_flag("--accept-reward-change", flags.run.accept_reward_change,
               "go on although a reward has another identity than the checkpoint's");
  app.add_flag("--supervised", flags.run.supervised,
               "given by oxbow train, which holds the lock of the run's directory");
}

// Fills in this process's rank: from torchrun, a JobSet or LocalRanks, or else rank 0 of the ranks
// it starts itself. `local` holds the started ranks. Restarted ranks resume.
absl::Status FindPlace(Flags& flags, std::unique_ptr<LocalRanks>& local) {
  const oxbow::v1::LearnerConfig& config = flags.run.config.learner();
  oxbow::parallel::JoinOptions& place = flags.run.place;
  OXBOW_ASSIGN_OR_RETURN(place, oxbow::parallel::ReadRankEnvironment(oxbow::FromEnvironment));
  const uint32_t ranks = flags.ranks > 0 ? flags.ranks : config.ranks();
  if (place.size == 1 && ranks > 1) {
    // Said before a rank is started and prompts are encoded.
    OXBOW_RETURN_IF_ERROR(oxbow::Annotate(
        oxbow::model::DeviceNamed(flags.run.config.model().device(), static_cast<int>(ranks) - 1)
            .status(),
        absl::StrCat("learner.ranks ", ranks, " needs a device for each")));
    oxbow::ShareMemoryAmong(ranks);
    OXBOW_ASSIGN_OR_RETURN(local, LocalRanks::Start(place, static_cast<int>(ranks), flags.argv));
    place = local->place();
  }
  place.operation_timeout = absl::Seconds(config.rank_timeout_seconds());
  place.join_timeout = kJoinTimeouts * place.operation_timeout;
  if (place.restart > 0) flags.run.resume = true;
  return absl::OkStatus();
}

// The settings that make a learner need less memory.
std::string RemedyFor(const oxbow::v1::RunConfig& config) {
  const std::string part = oxbow::config::NextMemoryPart(config);
  return absl::StrCat("lower batch.rows_per_pass (it is ", config.batch().rows_per_pass(),
                      "; 0: all rows of an update)",
                      part.empty() ? "" : absl::StrCat(", or add ", part, " to model.memory"));
}

absl::Status Run(Flags& flags) {
  oxbow::rpc::StopSignal stop(oxbow::kExitDrained);
  flags.run.stop = &stop;
  OXBOW_ASSIGN_OR_RETURN(flags.run.config, oxbow::config::LoadResolved(flags.config));
  if (flags.run.config.services().http_proxy()) oxbow::rpc::UseHttpProxy(true);
  flags.run.directory = flags.directory;
  flags.run.listen = flags.service.listen;
  flags.run.metrics_listen = flags.service.metrics_listen;
  std::unique_ptr<LocalRanks> local;
  OXBOW_RETURN_IF_ERROR(FindPlace(flags, local));
  // More threads are slower for models of this size, and one thread is repeatable.
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  if (local != nullptr) flags.run.ending = [&local] { local->Ending(); };
  return oxbow::model::WithMemoryFor([&] { return oxbow::learner::RunLearner(flags.run); },
                                     RemedyFor(flags.run.config));
}

}  // namespace

int main(int argc, char** argv) {
  oxbow::KeepFreedMemory();
  oxbow::learner::EndWithRankZero();
  Flags flags;
  flags.argv.assign(argv, argv + argc);
  return oxbow::rpc::RunService(
      "learner", "Coordinates rollout workers and trains the policy of one run.", argc, argv,
      flags.service, [&](CLI::App& app) { AddFlags(app, flags); }, [&] { return Run(flags); });
}
