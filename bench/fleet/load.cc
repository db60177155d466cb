// SPDX-License-Identifier: Apache-2.0
#include "bench/fleet/load.h"

namespace oxbow::bench {

void AddFlags(CLI::App& app, Load& load) {
  app.add_option("--workers", load.workers, "simulated workers")->check(CLI::Range(1, 100'000));
  app.add_option("--hosts", load.hosts, "processes that hold them")->check(CLI::Range(1, 1000));
  app.add_option("--kill-workers", load.kill_workers, "workers whose process is killed");
  app.add_option("--ranks", load.ranks, "learner ranks")->check(CLI::Range(1, 1000));
  app.add_flag("--kill-rank", load.kill_rank, "kill the last rank once steps are committed");
  app.add_option("--rewards", load.rewards, "reward servers")->check(CLI::Range(1, 1000));
  app.add_option("--steps", load.steps, "steps until the run is complete");
  app.add_option("--groups", load.groups, "groups of a step");
  app.add_option("--ahead", load.ahead, "steps that workers may be at")->check(CLI::Range(1, 100));
  app.add_option("--group-kib", load.group_kib, "KiB of latents of a large group");
  app.add_option("--small-kib", load.small_kib, "KiB of latents of any other group");
  app.add_option("--large-every", load.large_every, "one group in so many is large; 0: none");
  app.add_option("--prompts", load.prompts, "distinct prompts")->check(CLI::PositiveNumber);
  app.add_option("--conditioning-kib", load.conditioning_kib, "KiB of one as it travels");
  app.add_option("--held-mib", load.held_mib, "conditioning that a host holds");
  app.add_option("--adapter-chunks", load.adapter_chunks, "chunks that each step publishes");
  app.add_option("--picture-side", load.picture_side, "pixels; 16 pictures a group are scored");
  app.add_option("--group-seconds", load.group_seconds, "mean time a worker samples a group");
  app.add_option("--lease-seconds", load.lease_seconds, "lifetime of a lease unless renewed");
  app.add_option("--seconds-max", load.seconds_max, "after which the fleet counts as stuck");
  app.add_option("--expect-p99-ms", load.expect_p99_ms, "fail above this; 0: only print it");
  app.add_option("--expect-told-ms", load.expect_told_ms,
                 "fail if the last worker is told of new weights later; 0: only print it");
  app.add_option("--expect-mib", load.expect_mib,
                 "fail if a rank grows by more beside its sink's room; 0: only print it");
  // A process of the fleet gets these from the one that a person started.
  const auto own = [&app](const char* name, auto& value) {
    app.add_option(name, value)->group("");
  };
  own("--role", load.role);
  own("--directory", load.directory);
  own("--leader", load.leader);
  own("--reward-endpoints", load.reward_endpoints);
  own("--epoch", load.epoch);
  own("--rank", load.rank);
  own("--first", load.first);
  own("--count", load.count);
  app.add_flag("--holds", load.holds)->group("");
}

std::string Misfit(const Load& load) {
  if (load.groups % static_cast<uint64_t>(load.ranks) != 0) {
    return "--ranks must divide --groups";
  }
  if (load.kill_workers >= load.workers) return "--kill-workers must leave some of --workers";
  if (load.kill_rank && (load.ranks < 2 || load.steps < 4)) {
    return "--kill-rank needs two ranks and four steps";
  }
  if (load.small_kib % 4 != 0 || load.group_kib % (4 * load.small_kib) != 0) {
    return "--small-kib must be a multiple of 4, and --group-kib one of four times that";
  }
  return "";
}

}  // namespace oxbow::bench
