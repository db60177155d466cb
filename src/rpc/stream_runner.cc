// SPDX-License-Identifier: Apache-2.0
#include "rpc/stream_runner.h"

#include <utility>

#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/clock.h"
#include "rpc/stream.h"

namespace oxbow::rpc {
namespace {

// A coroutine that only tells that a thread has come to it.
struct Knock {
  struct promise_type {
    Knock get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

Knock Answer(std::shared_ptr<absl::Notification> heard) {
  heard->Notify();
  co_return;
}

}  // namespace

StreamRunner::StreamRunner(Options options) : options_(options) {
  OXBOW_CHECK(options.threads >= 0) << "threads of a stream runner";
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Work(); });
  if (options.threads > 0) threads_.emplace_back([this] { Tick(); });
}

StreamRunner::~StreamRunner() {
  AwaitNone(absl::InfiniteDuration());
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    alarm_set_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool StreamRunner::Responds(absl::Duration timeout) {
  const auto heard = std::make_shared<absl::Notification>();
  Resume(Answer(heard).handle);
  return heard->WaitForNotificationWithTimeout(timeout);
}

std::coroutine_handle<> StreamRunner::TakeReady() {
  absl::MutexLock lock(&mutex_);
  if (ready_.empty()) return nullptr;
  const std::coroutine_handle<> next = ready_.front();
  ready_.pop_front();
  return next;
}

void StreamRunner::RunReady() {
  OXBOW_CHECK(options_.threads == 0) << "streams run by themselves";
  while (const std::coroutine_handle<> next = TakeReady()) next.resume();
}

size_t StreamRunner::streams() const {
  absl::MutexLock lock(&mutex_);
  return streams_;
}

bool StreamRunner::AwaitNone(absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return streams_ == 0; };
  return mutex_.AwaitWithTimeout(absl::Condition(&none), timeout);
}

void StreamRunner::Opened() {
  absl::MutexLock lock(&mutex_);
  ++streams_;
}

void StreamRunner::Closed() {
  absl::MutexLock lock(&mutex_);
  --streams_;
}

void StreamRunner::Resume(std::coroutine_handle<> handler) {
  absl::MutexLock lock(&mutex_);
  ready_.push_back(handler);
}

void StreamRunner::WakeAt(absl::Duration at, std::weak_ptr<StreamBase> stream) {
  absl::MutexLock lock(&mutex_);
  if (alarms_.empty() || at < alarms_.top().at) alarm_set_.Signal();
  alarms_.push({at, std::move(stream)});
}

void StreamRunner::Work() {
  while (true) {
    std::coroutine_handle<> next;
    {
      absl::MutexLock lock(&mutex_);
      const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !ready_.empty();
      };
      mutex_.Await(absl::Condition(&any));
      if (ready_.empty()) return;
      next = ready_.front();
      ready_.pop_front();
    }
    next.resume();  // Another thread may resume or end it again before this returns.
  }
}

void StreamRunner::Tick() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    const absl::Duration now = Clock::Steady().Now();
    if (alarms_.empty()) {
      alarm_set_.Wait(&mutex_);
      continue;
    }
    if (alarms_.top().at > now) {
      alarm_set_.WaitWithTimeout(&mutex_, alarms_.top().at - now);
      continue;
    }
    std::shared_ptr<StreamBase> stream = alarms_.top().stream.lock();
    alarms_.pop();
    if (stream == nullptr) continue;
    mutex_.Unlock();
    stream->Expire(now);
    stream.reset();
    mutex_.Lock();
  }
}

}  // namespace oxbow::rpc
