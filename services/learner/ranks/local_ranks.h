// SPDX-License-Identifier: Apache-2.0
// `--ranks N` on one machine: this process is rank 0 and starts the others: the same program with
// the environment that torchrun would give them.
//
// The others are killed when rank 0 dies, and rank 0 ends at once when one of them does. The
// supervisor of rank 0 then starts all of them again.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/parallel/c10d_ranks.h"

namespace oxbow::learner {

class LocalRanks {
 public:
  // Starts ranks 1 .. ranks - 1 with the arguments of this process. A launcher may have given it a
  // `place` as the only rank. Call it before any thread exists that may end before the process
  // does. kUnavailable if a process cannot be started or no port is free.
  static absl::StatusOr<std::unique_ptr<LocalRanks>> Start(parallel::JoinOptions place, int ranks,
                                                           const std::vector<std::string>& argv);
  // Waits a moment for the others to end by themselves, then kills them.
  ~LocalRanks();

  // Where rank 0 meets them.
  const parallel::JoinOptions& place() const { return place_; }

  // After this call the others may end.
  void Ending();

 private:
  LocalRanks() = default;
  void Watch(int rank, pid_t pid);

  parallel::JoinOptions place_;
  absl::Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<int, pid_t> alive_ ABSL_GUARDED_BY(mutex_);  // By rank.
  std::vector<std::thread> watchers_;
};

// Makes a process that LocalRanks started end with its parent. Does nothing in other processes.
void EndWithRankZero();

}  // namespace oxbow::learner
