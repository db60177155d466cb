// Is this machine fit for a run? Facts in, verdicts out. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/oncall/checkup.h"

namespace oxbow::cli {

struct MachineFacts {
  // Bytes that can be taken before something is killed: the lower of the system's and the control
  // group's.
  uint64_t memory_available = 0;
  bool memory_of_cgroup = false;
  std::string disk_path;  // Where runs are written.
  uint64_t disk_free = 0;
  bool disk_writable = true;
  uint64_t descriptors = 0;      // The soft limit of open files.
  uint64_t descriptors_max = 0;  // What it may be raised to.
  double cores = 0;              // That this process may use; fractions by a control group's quota.
  double load = 0;               // Runnable processes, mean of a minute.
  std::optional<bool> clock_synchronised;
  absl::Duration certificate_left = absl::InfiniteDuration();  // Of TLS; infinite: none.
  // As set in the environment; empty: not set.
  std::string omp_num_threads;
  std::string omp_wait_policy;
  std::string cpu_capability;  // As LibTorch chose its kernels: "AVX512", "AVX2", "DEFAULT".
  bool fast_blas = true;       // LibTorch was built with MKL or another tuned one.
  struct Port {
    std::string endpoint;
    std::string taken;  // Why it cannot be bound; empty: free.
  };
  std::vector<Port> ports;
};

// What a run takes; 0: unknown, and the check says only what is there.
struct MachineNeeds {
  uint64_t memory = 0;
  uint64_t disk = 0;
  uint32_t busy_processes = 0;  // That compute all the time: learner ranks and workers.
  uint32_t processes = 0;
  // The run is at work: it has what it needs, and load is its own.
  bool met = false;
};

inline constexpr int kCertificateDaysWanted = 14;
inline constexpr uint64_t kDescriptorsWanted = 4096;
inline constexpr uint64_t kDescriptorsLeast = 1024;  // RocksDB takes 256, each peer a few.

Checks JudgeMachine(const MachineFacts& facts, const MachineNeeds& needs);

}  // namespace oxbow::cli
