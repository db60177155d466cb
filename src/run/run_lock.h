// SPDX-License-Identifier: Apache-2.0
// The locks of a run's directory: one process at a time changes what is in it.
//
//   LOCK           `oxbow train`, a learner that was started by hand, `oxbow rollback`
//   learner.lock   rank 0 of the learner, in both cases
//
// Each file has 512 bytes: a JSON object that names its last holder, then spaces. The lock itself
// is the kernel's and ends with its process, so a file that is left behind locks nothing.
//
// The record has a random token, which makes it a fence as well. On a file system without locks a
// new start takes the directory over, and the process before it ends at its next CheckHeld.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/descriptor.h"

namespace oxbow::run {

class RunLock {
 public:
  enum class Part { kRun, kLearner };

  struct Options {
    Part part = Part::kRun;
    std::string program;                         // As a person knows it: "oxbow train".
    absl::Duration wait = absl::ZeroDuration();  // How long to wait for another holder.
    LockFunction lock = ::flock;                 // Tests replace it.
  };

  RunLock(RunLock&&) = default;
  RunLock& operator=(RunLock&&) = default;
  // Releases the lock. Without locks in the file system the record then names no process.
  ~RunLock();

  // Takes the lock. `run_dir` exists. kUnavailable with one line
  // that names the holder if another process has it. Without locks in the file system: only if the
  // process that the record names is alive on this machine.
  static absl::StatusOr<RunLock> Take(const std::filesystem::path& run_dir, const Options& options);

  // Call it before each change that lasts. kFailedPrecondition if another start has taken the
  // directory over or the directory is gone; kResourceExhausted if no descriptor is free to look.
  // Thread-safe.
  absl::Status CheckHeld() const;

  uint64_t start() const { return start_; }  // Counts the holders of this lock, from 1.

 private:
  RunLock(std::filesystem::path path, Descriptor file, bool locked, uint64_t start,
          std::string record);

  std::filesystem::path path_;
  Descriptor file_;
  bool locked_;  // By the kernel.
  uint64_t start_;
  std::string record_;
};

// Whether some process holds a lock of the run at this moment: the run is live. On a file system
// without locks nothing is known, and the answer is false.
bool IsLive(const std::filesystem::path& run_dir);

// Whether a name in a run's directory is that of a lock file.
bool IsLockFile(const std::filesystem::path& name);

}  // namespace oxbow::run
