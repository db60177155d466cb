// SPDX-License-Identifier: Apache-2.0
// A load test of everything that a learner serves, without a model: many simulated workers, several
// ranks and reward servers, over real gRPC, each role in processes of its own. Some groups are as
// large as FLUX's; prompts bring conditioning; workers and a rank are killed on the way.
//
//   fleet_load                                                  a hundred workers, one rank
//   fleet_load --workers 1000 --ranks 64 --groups 1024 ...      docs/lab/scale.md
//
// Exit code 1 if anything is lost: a step that is not committed whole, in order and once; a group
// with other bytes or rewards than its worker sent; a call refused for want of room; dead workers
// whose leases were given to nobody; a worker that was not told of the last weights.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/parent_death.h"
#include "base/process.h"
#include "base/statistics.h"
#include "bench/fleet/fleet.h"
#include "bench/fleet/learner_ranks.h"
#include "bench/fleet/made_up_group.h"
#include "bench/fleet/worker_host.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::bench {
namespace {

int wrong = 0;

void Judge(bool fine, const std::string& what) {
  if (fine) return;
  std::printf("WRONG: %s\n", what.c_str());
  ++wrong;
}

void PrintRole(const Fleet& fleet, const char* role, const char* name) {
  const Fleet::Account account = fleet.AccountOf(role);
  std::printf("%s: %.0f MiB more than at its start (the largest), %.1f s of the processor\n", name,
              account.mib_most, account.cpu_s);
  for (const auto& [call, count] : account.refused) {
    Judge(false, absl::StrCat(name, " refused ", count, " calls of ", call));
  }
}

void Report(const Load& load, const Fleet& fleet, double seconds) {
  const Fleet::Account hosts = fleet.AccountOf("host");
  std::vector<double> latencies = fleet.latencies_ms();
  const double sent = static_cast<double>(hosts.sums.at("sent_bytes")) / (1 << 20);
  std::printf("%d workers, %d ranks, %d reward servers; %lu steps of %lu groups in %.1f s\n",
              load.workers, load.ranks, load.rewards, load.steps, load.groups, seconds);
  std::printf("groups: %lu accepted, %lu late; latents %.0f MiB, %.0f MiB/s\n",
              hosts.sums.at("accepted"), hosts.sums.at("late"), sent, sent / seconds);
  const Fleet::Account served = fleet.AccountOf("leader");
  std::printf(
      "a step: %.3f s, %.0f bytes of conditioning from rank 0, %.0f of latents\n",
      fleet.step_seconds(),
      static_cast<double>(served.sums.at("content_bytes")) / static_cast<double>(load.steps),
      static_cast<double>(hosts.sums.at("sent_bytes")) / static_cast<double>(load.steps));
  std::printf("a group: %.4f s from its lease to its result\n",
              static_cast<double>(hosts.sums.at("busy_ms")) / 1000 /
                  static_cast<double>(hosts.sums.at("accepted")));
  std::printf(
      "killed: %d workers (%.0f leases expired), %d ranks (the learner started %lu times)\n",
      load.kill_workers, fleet.most_expired(), load.kill_rank ? 1 : 0, fleet.starts());
  const double p99 = Quantile(latencies, 0.99);
  std::printf("credit to lease, ms: p50 %.1f  p99 %.1f  max %.1f\n", Quantile(latencies, 0.5), p99,
              Quantile(latencies, 1));
  const double room = static_cast<double>(SinkBytes(load)) / (1 << 20);
  std::printf("room of a rank's sink: %.0f MiB\n", room);
  PrintRole(fleet, "leader", "rank 0");
  PrintRole(fleet, "member", "other ranks");
  PrintRole(fleet, "reward", "reward servers");
  PrintRole(fleet, "host", "workers");
  const Fleet::Account leader = fleet.AccountOf("leader");
  const double told_ms = hosts.at_ms - leader.at_ms;
  std::printf("publication: the last of the workers was told of version %.0f after %.0f ms\n",
              leader.version, told_ms);
  Judge(hosts.version == leader.version,
        absl::StrCat("a worker was last told of version ", hosts.version, ", not of the last, ",
                     leader.version));
  Judge(load.expect_told_ms <= 0 || told_ms <= load.expect_told_ms,
        "workers are told of new weights too late");
  Judge(load.expect_p99_ms <= 0 || p99 <= load.expect_p99_ms, "leases come too late");
  for (const char* role : {"leader", "member"}) {
    Judge(load.expect_mib <= 0 || fleet.AccountOf(role).mib_most <= room + load.expect_mib,
          absl::StrCat(role, " takes more memory than expected"));
  }
  Judge(load.kill_workers == 0 || fleet.most_expired() > 0, "no lease of a dead worker expired");
  Judge(fleet.starts() == (load.kill_rank ? 2u : 1u), "the learner started at the wrong times");
}

int Supervise(Load load, std::vector<std::string> argv) {
  const testing::ScopedDirectory directory;
  load.directory = directory.path();
  argv[0] = std::filesystem::read_symlink("/proc/self/exe");
  Fleet fleet(load, std::move(argv));
  absl::Status status = fleet.Start();
  const absl::Time begin = absl::Now();
  if (status.ok()) status = fleet.Run();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  if (status.ok()) status = fleet.CheckSteps();
  Judge(status.ok(), status.ToString());
  if (status.ok()) Report(load, fleet, seconds);
  return wrong == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Load load;
  CLI::App app("Load on a learner by many simulated workers, with faults");
  AddFlags(app, load);
  CLI11_PARSE(app, argc, argv);
  if (const std::string misfit = Misfit(load); !misfit.empty()) {
    std::fprintf(stderr, "%s\n", misfit.c_str());
    return 2;
  }
  RaiseDescriptorLimit();
  if (load.role.empty()) return Supervise(load, {argv, argv + argc});
  if (!DieWithParent(getppid())) return 1;
  ConfigureLog(LogLevel::kError, LogFormat::kText, load.role);
  if (load.role == "leader") return RunLeader(load);
  if (load.role == "member") return RunMember(load);
  return RunHost(load);
}

}  // namespace
}  // namespace oxbow::bench

int main(int argc, char** argv) { return oxbow::bench::Main(argc, argv); }
