// SPDX-License-Identifier: Apache-2.0
// Threads that do tasks, with a queue that has an end: who adds a task waits while it is full.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::reward {

class TaskThreads {
 public:
  // As many tasks may wait as there are threads. Requires one thread at least.
  explicit TaskThreads(int threads);
  ~TaskThreads() { Join(); }

  // Not after Join.
  void Add(std::function<void()> task);
  // Ends when all tasks are done.
  void Join();

 private:
  void Work();

  const size_t waiting_max_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace oxbow::reward
