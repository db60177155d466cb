// SPDX-License-Identifier: Apache-2.0
// Keeps the report of a live run new, on a thread of its own: training goes on meanwhile.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace oxbow::learner {

class LiveReport {
 public:
  // Writes the report of a run that is `live` or has ended. Its errors are logged.
  using Write = std::function<absl::Status(bool live)>;

  // `write` is called on the thread: after each Ask, and `every` later if nobody has asked since,
  // so that a page which is older belongs to a run that was killed.
  LiveReport(Write write, absl::Duration every);
  ~LiveReport();

  // There is something new to show. Nothing is written before the first call. Thread-safe.
  void Ask();

  // Waits for a write in progress; none begins afterwards.
  void Stop();
  // Stops, and writes the report of a run that has ended.
  void WriteLast();

 private:
  void Run();
  void WriteOnce(bool live);

  const Write write_;
  const absl::Duration every_;
  absl::Mutex mutex_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace oxbow::learner
