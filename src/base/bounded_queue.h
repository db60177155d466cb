// SPDX-License-Identifier: Apache-2.0
// A bounded multi-producer multi-consumer queue with two ways to end it: Drain and Close.
//
// Drain refuses new items and lets consumers finish what is queued; Close also drops what is
// queued. Both wake every waiter. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace oxbow {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {
    OXBOW_CHECK(capacity > 0) << "queue capacity";
  }

  // Waits for room. Returns false if the queue was drained or closed, or the timeout passed; the
  // item is then dropped.
  bool Push(T item, absl::Duration timeout = absl::InfiniteDuration()) {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !open_ || items_.size() < capacity_;
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), timeout) || !open_) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // Waits for an item. Returns nothing when the queue has ended and is empty, or on timeout.
  std::optional<T> Pop(absl::Duration timeout = absl::InfiniteDuration()) {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !open_ || !items_.empty();
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), timeout) || items_.empty()) {
      return std::nullopt;
    }
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  // Refuses new items; queued ones are still handed out.
  void Drain() {
    absl::MutexLock lock(&mutex_);
    open_ = false;
  }

  // Refuses new items and drops queued ones.
  void Close() {
    absl::MutexLock lock(&mutex_);
    open_ = false;
    items_.clear();
  }

  size_t size() const {
    absl::MutexLock lock(&mutex_);
    return items_.size();
  }

 private:
  const size_t capacity_;
  mutable absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow
