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

  // `failed` is called on the writer's thread with the error of a write, so that the run ends
  // without waiting for its next checkpoint.
  explicit CheckpointWriter(std::function<void(const absl::Status&)> failed);
  // Waits until the write in progress has ended.
  ~CheckpointWriter();

  // Waits until no write is in progress. Returns the error of the first one that failed.
  absl::Status Finish();

  // Starts a write, after Finish. If that returns an error, nothing is started.
  absl::Status Begin(Write write);

 private:
  void Run();

  const std::function<void(const absl::Status&)> failed_;
  absl::Mutex mutex_;
  std::optional<Write> write_ ABSL_GUARDED_BY(mutex_);  // Until it has ended.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace oxbow::learner
