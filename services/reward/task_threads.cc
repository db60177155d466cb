// SPDX-License-Identifier: Apache-2.0
#include "services/reward/task_threads.h"

#include <utility>

namespace oxbow::reward {

TaskThreads::TaskThreads(int threads) : waiting_max_(threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

void TaskThreads::Add(std::function<void()> task) {
  const auto room = [this]()
                        ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return tasks_.size() < waiting_max_; };
  absl::MutexLock lock(&mutex_, absl::Condition(&room));
  tasks_.push_back(std::move(task));
}

void TaskThreads::Join() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void TaskThreads::Work() {
  const auto some = [this]()
                        ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ending_ || !tasks_.empty(); };
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&some));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace oxbow::reward
