// SPDX-License-Identifier: Apache-2.0
// Judges whether this machine is fit for a run, from facts. Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/oncall/checkup.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {

// A place that a run writes to.
struct DiskShare {
  std::string key;  // It moves the place: "run.directory".
  std::filesystem::path place;
  uint64_t bytes = 0;  // The most that the run writes there; 0: unknown.
  uint64_t least = 0;  // Without room for these no run comes to its end.
};

// A file system, and the shares on it added up.
struct Disk {
  std::string path;  // The first place; its nearest parent that is there.
  std::vector<std::string> keys;
  uint64_t free = 0;
  bool writable = true;
  uint64_t needs = 0;
  uint64_t least = 0;
};

struct MachineFacts {
  // Bytes that can be allocated before the kernel kills a process: the lower of the system's value
  // and the control group's.
  uint64_t memory_available = 0;
  bool memory_of_cgroup = false;
  uint64_t memory_usable = 0;    // With nothing else on the machine, or in the control group.
  std::vector<Disk> disks;       // The first has the run's directory.
  uint64_t descriptors_max = 0;  // The hard limit of open files; processes raise theirs to it.
  double cores = 0;              // Cores that this process may use; a quota can make it fractional.
  double load = 0;               // Runnable processes, averaged over a minute.
  std::optional<bool> clock_synchronised;
  absl::Duration certificate_left = absl::InfiniteDuration();  // For TLS; infinite: none.
  // Values of the environment variables; empty: not set.
  std::string omp_num_threads;
  std::string omp_wait_policy;
  std::string cpu_capability;  // The kernels that LibTorch chose: "AVX512", "AVX2", "DEFAULT".
  bool fast_blas = true;       // LibTorch was built with MKL or another tuned library.
  // "http_proxy=http://proxy:3128", without a password, of those that are set.
  std::vector<std::string> proxies = {};
  std::vector<std::string> rank_variables = {};  // "RANK=0": what a launcher of ranks has set.
  struct Port {
    std::string endpoint;
    std::string taken;  // Reason why it cannot be bound; empty: free.
  };
  std::vector<Port> ports;
};

// The needs of a run; 0: unknown, and the check only reports what the machine has.
struct MachineNeeds {
  uint64_t memory = 0;
  uint64_t memory_limits = 0;  // MemoryLimitsOf all its processes.
  std::vector<DiskShare> disks;
  uint32_t busy_processes = 0;  // Processes that compute all the time: ranks and workers.
  uint32_t processes = 0;
  // The run is already running: it has what it needs, and the load is its own.
  bool met = false;
  // The clocks of other machines matter.
  bool other_machines = true;
  bool http_proxy = false;  // services.http_proxy.
};

// Whether a run under `oxbow train` has to do with other machines: its services listen beyond this
// one, or its reward servers are elsewhere.
bool SpansMachines(const v1::RunConfig& config);

inline constexpr int kCertificateDaysWanted = 14;
inline constexpr uint64_t kDescriptorsWanted = 4096;
inline constexpr uint64_t kDescriptorsLeast = 1024;  // RocksDB takes 256, each peer a few.

// A check for each: "disk", then "disk of KEYS".
Checks JudgeDisks(const std::vector<Disk>& disks);

Checks JudgeMachine(const MachineFacts& facts, const MachineNeeds& needs);

// The file systems of these places, each once and in this order. A place need not exist.
std::vector<Disk> LookAtDisks(const std::vector<DiskShare>& shares);

// Binds each of `ports` ("host:port") for a moment. The caller fills in the two facts about
// LibTorch. What cannot be read keeps its default.
MachineFacts LookAtMachine(const std::vector<DiskShare>& shares,
                           const std::vector<std::string>& ports);

}  // namespace oxbow::cli
