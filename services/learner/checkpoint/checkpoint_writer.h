// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints, and copies them to a second place, on threads of their own: training goes on
// meanwhile.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "config/file_paths.h"

namespace oxbow::learner {

// Writes one checkpoint at a time. Owned by one thread; only that one calls it.
class CheckpointWriter {
 public:
  // Writes one checkpoint to the end; on the writer's thread.
  using Write = std::function<absl::Status()>;

  CheckpointWriter();
  // Waits until the write in progress has ended.
  ~CheckpointWriter();

  // The outcome of the last write; nothing while it is in progress.
  std::optional<absl::Status> Ended() const;

  // Waits until no write is in progress. Returns what became of the last one.
  absl::Status Finish();

  // Starts a write, after Finish, whatever became of the one before.
  void Begin(Write write);

 private:
  void Run();

  mutable absl::Mutex mutex_;
  std::optional<Write> write_ ABSL_GUARDED_BY(mutex_);  // Until it has ended.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// The command for one checkpoint: {} replaced by the directory, quoted for sh.
std::string CommandFor(const std::string& command, const std::filesystem::path& checkpoint);

// Whether a run in `run_directory`, which has no checkpoint, is one that has copies: those of its
// uid, or where it has no uid yet of any run of its name. Then kInvalidArgument, with how to go on
// from them and how to begin another run all the same.
absl::Status CheckNoCopies(const std::filesystem::path& run_directory, const std::string& run_name,
                           const config::CopyTarget& target);

// The start of this run that makes copies there; 0 if none is known.
uint64_t StartThatCopies(const config::CopyTarget& target, const std::string& run_uid);

// Copies checkpoints to a second place, on a thread of its own: `checkpoint.copy_to`.
//
//   DIRECTORY         DIRECTORY/RUN_UID/step_000025, verified as a checkpoint is, `keep` of them
//   command: COMMAND  run by sh with the checkpoint's directory, quoted, for {}, and the run's uid
//                     in OXBOW_RUN_UID
//
// Runs share a place without harm: each has a directory of its own there, and no copy is deleted
// but older ones of the same run. Two starts of one run, whose directory was copied, do not mix:
// the newer start, or of two that count alike the first to copy, has DIRECTORY/RUN_UID/start.
//
// A copy that fails is a warning and a count; the run goes on. While one is made, only the newest
// of the checkpoints that become due waits.
class CheckpointCopier {
 public:
  struct Options {
    std::filesystem::path checkpoints;  // Where they are written.
    config::CopyTarget target;
    std::string run_uid;
    uint64_t epoch = 0;  // The number of this start.
    uint32_t keep = 2;
    std::string best;                             // As CheckpointStore's.
    absl::Duration command_max = absl::Hours(2);  // Then it is killed.
  };

  // `ended` is called after each copy, with how that went, on the copier's thread.
  CheckpointCopier(Options options, std::function<void(const absl::Status&)> ended);
  // Kills a command that runs; waits for a copy to a directory.
  ~CheckpointCopier();

  // Copies the checkpoint of `committed_steps`, which is written. Thread-safe; never waits.
  void Copy(uint64_t committed_steps);

  // Waits until nothing is left to copy; false after `timeout`.
  bool Finish(absl::Duration timeout);

  uint64_t failures() const;
  std::string last_error() const;  // Empty: the last copy was made, or none was tried.

 private:
  void Run();
  absl::Status CopyOne(uint64_t committed_steps);
  absl::Status Claim(const std::filesystem::path& copies) const;
  absl::Status CopyToDirectory(uint64_t committed_steps) const;
  absl::Status RunCommand(const std::string& command);

  const Options options_;
  const std::string self_;  // "7 0123456789abcdef": the start, and a random number.
  const std::function<void(const absl::Status&)> ended_;
  mutable absl::Mutex mutex_;
  std::optional<uint64_t> due_ ABSL_GUARDED_BY(mutex_);
  bool copying_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string last_error_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<pid_t> groups_;  // Commands whose children may live on. The thread's alone.
  std::thread thread_;
};

}  // namespace oxbow::learner
