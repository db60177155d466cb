// SPDX-License-Identifier: Apache-2.0
// The threads on which the streams of a service run, and the clock that ends idle ones.
//
// A stream (rpc/stream.h) is on a thread only while it has something to do. So a few threads serve
// any number of streams, and what blocks for a moment (a database, a mutex) blocks none of gRPC's
// own threads. Thread-safe.
#pragma once

#include <coroutine>
#include <deque>
#include <memory>
#include <queue>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace oxbow::rpc {

class StreamBase;

class StreamRunner {
 public:
  struct Options {
    int threads = 4;  // 0: streams run in RunReady only, and none is ever idle for too long.
    // A stream whose peer neither sends nor takes anything for so long ends: DEADLINE_EXCEEDED.
    absl::Duration idle_max = absl::Seconds(60);
  };
  explicit StreamRunner(Options options);
  // Waits until all streams have ended: their server must be shut down before.
  ~StreamRunner();
  StreamRunner(const StreamRunner&) = delete;
  StreamRunner& operator=(const StreamRunner&) = delete;

  // Whether a thread takes up new work within `timeout`.
  bool Responds(absl::Duration timeout);

  // Runs in this thread what is ready, until nothing is: for tests in which nothing happens by
  // itself. Requires threads = 0.
  void RunReady();

  size_t streams() const;  // Open ones.
  // Waits until no stream is open. False after `timeout`.
  bool AwaitNone(absl::Duration timeout) const;
  absl::Duration idle_max() const { return options_.idle_max; }

 private:
  friend class StreamBase;
  struct Alarm {
    absl::Duration at;
    std::weak_ptr<StreamBase> stream;
    bool operator>(const Alarm& other) const { return at > other.at; }
  };

  void Opened();
  void Closed();
  // Resumes the coroutine on a thread. At most one resumption of a stream is queued.
  void Resume(std::coroutine_handle<> handler);
  // Calls the stream's Expire at `at` of Clock::Steady, from the clock's thread.
  void WakeAt(absl::Duration at, std::weak_ptr<StreamBase> stream);
  std::coroutine_handle<> TakeReady();  // Null if nothing is ready.
  void Work();
  void Tick();

  const Options options_;
  mutable absl::Mutex mutex_;
  std::deque<std::coroutine_handle<>> ready_ ABSL_GUARDED_BY(mutex_);
  std::priority_queue<Alarm, std::vector<Alarm>, std::greater<>> alarms_ ABSL_GUARDED_BY(mutex_);
  absl::CondVar alarm_set_;
  size_t streams_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace oxbow::rpc
