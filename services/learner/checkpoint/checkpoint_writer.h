// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints on a thread of its own, one at a time: training goes on meanwhile.
//
// Owned by one thread; only that one calls it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::learner {

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

}  // namespace oxbow::learner
