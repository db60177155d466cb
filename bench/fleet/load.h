// SPDX-License-Identifier: Apache-2.0
// The load that fleet_load puts on a learner: the flags that all its processes share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace oxbow::bench {

struct Load {
  int workers = 100;
  int hosts = 2;         // Processes that hold the workers.
  int kill_workers = 0;  // So many of them are in one more process, which is killed.
  int ranks = 1;
  bool kill_rank = false;  // The last rank is killed later, and the learner starts again.
  int rewards = 1;         // Replicas of the reward server.
  uint64_t steps = 4;
  uint64_t groups = 100;  // Groups of a step; a multiple of the ranks.
  uint64_t ahead = 2;  // Steps that are planned and not committed: the staleness budget, and one.
  uint64_t group_kib = 65536;  // Latents of a large group: 16 trajectories of 4 MiB, as of FLUX.
  uint64_t small_kib = 128;    // And of all others: 2 trajectories of 2 latents.
  uint64_t large_every = 20;   // One group in so many is large; 0: none.
  uint64_t prompts = 200;      // Distinct ones, each with conditioning.
  uint64_t conditioning_kib = 256;
  uint64_t held_mib = 256;  // Conditioning that the workers of one process hold.
  uint64_t adapter_chunks = 40;
  int picture_side = 64;
  double group_seconds = 0.5;  // Mean time that a worker samples.
  double lease_seconds = 5;
  double seconds_max = 300;   // After which the fleet counts as stuck.
  double expect_p99_ms = 0;   // Lease latency; 0: not judged.
  double expect_told_ms = 0;  // From a publication to the last worker; 0: not judged.
  double expect_mib = 0;      // Limit of a rank's memory beside its sink's room; 0: not judged.

  // Where a process of the fleet stands. Not given by a person.
  std::string role;
  std::string directory;
  std::string leader;  // host:port of rank 0, or where it is to listen.
  std::vector<std::string> reward_endpoints;
  uint64_t epoch = 1;
  int rank = 0;
  int first = 0;  // A host's first worker, and how many it has.
  int count = 0;
  bool holds = false;  // A host that is to be killed: its workers keep their leases.
};

void AddFlags(CLI::App& app, Load& load);

// Why the flags do not fit each other; empty if they do.
std::string Misfit(const Load& load);

}  // namespace oxbow::bench
