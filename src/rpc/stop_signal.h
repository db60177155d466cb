// SPDX-License-Identifier: Apache-2.0
// The stop signals of a process: SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 (with which Slurm warns), and
// SIGHUP (the terminal was closed). Except for the first two, those that are ignored, as under
// nohup, do nothing.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace oxbow::rpc {

sigset_t StopSignals();
std::string NameOfSignal(int number);  // "SIGTERM"

// A thread that takes the stop signals of this process. While it loads, a signal ends it at once:
// nothing is lost by that. Once it serves, the first signal begins an orderly end, and another one
// ends it at once.
class StopSignal {
 public:
  using Action = std::function<void(int signal)>;

  // `exit_code`: of a process that a signal ends while it loads. Requires BlockStopSignals.
  explicit StopSignal(int exit_code);
  // From now on signals wait for the next one who takes them.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // `last` runs before a signal ends the process while it loads.
  void WhileLoading(Action last);
  // From now on the first signal calls `finish`. A signal that comes at least 3 s after it ends the
  // process with kExitInterrupted or kExitTerminated; a launcher and its group may each pass on the
  // same request, so one that comes sooner is not another one. Replaces an earlier `finish`, which
  // is not called any more once this returns.
  void Finish(Action finish);
  // The two halves of Finish for a process that only waits: from now on the first signal is kept,
  // and Wait returns once it has come. Call the first before READY is announced.
  void Serves();
  void Wait();

 private:
  void Run(int exit_code);

  std::atomic<bool> ending_ = false;
  absl::Mutex mutex_;  // Held while an action runs.
  Action loading_ ABSL_GUARDED_BY(mutex_);
  Action finish_ ABSL_GUARDED_BY(mutex_);
  absl::Notification received_;
  std::thread thread_;
};

}  // namespace oxbow::rpc
