// SPDX-License-Identifier: Apache-2.0
// This executable's wall clock is an hour ahead of the kernel's (tests/testing/wall_clock_ahead):
// a wait until a time of the wall clock would last an hour.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/bounded_queue.h"
#include "base/check.h"
#include "base/clock.h"

namespace oxbow {
namespace {

constexpr absl::Duration kTimeout = absl::Milliseconds(30);

// How long `wait` takes. A wait of an hour cannot be ended, so it ends the test.
absl::Duration TimeOf(const std::function<void()>& wait) {
  const absl::Duration start = Clock::Steady().Now();
  std::future<void> ended = std::async(std::launch::async, wait);
  OXBOW_CHECK(ended.wait_for(std::chrono::seconds(60)) == std::future_status::ready)
      << "the wait follows the wall clock";
  return Clock::Steady().Now() - start;
}

TEST(SteadyWaitsTest, TheWallClockIsWrongHere) {
  timespec kernel;
  ASSERT_EQ(syscall(SYS_clock_gettime, CLOCK_REALTIME, &kernel), 0);
  EXPECT_GT(absl::Now() - absl::TimeFromTimespec(kernel), absl::Minutes(59));
}

// Promise: A stalled worker delays nobody.
TEST(SteadyWaitsTest, EachTimedWaitEndsAfterItsTimeAndNotBefore) {
  absl::Mutex mutex;
  absl::CondVar changed;
  const bool never = false;
  const std::map<std::string, std::function<void()>> waits = {
      {"Await",
       [&] {
         absl::MutexLock lock(&mutex);
         EXPECT_FALSE(mutex.AwaitWithTimeout(absl::Condition(&never), kTimeout));
       }},
      {"LockWhen",
       [&] {
         EXPECT_FALSE(mutex.LockWhenWithTimeout(absl::Condition(&never), kTimeout));
         mutex.Unlock();
       }},
      {"CondVar",
       [&] {
         absl::MutexLock lock(&mutex);
         EXPECT_TRUE(changed.WaitWithTimeout(&mutex, kTimeout));
       }},
      {"Notification",
       [] { EXPECT_FALSE(absl::Notification().WaitForNotificationWithTimeout(kTimeout)); }},
      {"queue", [] { EXPECT_FALSE(BoundedQueue<int>(1).Pop(kTimeout).has_value()); }},
  };
  for (const auto& [name, wait] : waits) {
    SCOPED_TRACE(name);
    // The two clocks are read one after the other, so a wait may seem shorter by that.
    EXPECT_GE(TimeOf(wait), kTimeout - absl::Milliseconds(5));
  }
}

// A wait that is woken for something else goes on, and ends at its time.
TEST(SteadyWaitsTest, AWakeUpThatIsNotForTheWaitLeavesItsEndAsItIs) {
  absl::Mutex mutex;
  absl::CondVar changed;
  bool ended = false;
  std::thread waker([&] {
    absl::MutexLock lock(&mutex);
    while (!ended) {
      changed.SignalAll();
      changed.WaitWithTimeout(&mutex, absl::Milliseconds(1));
    }
  });
  TimeOf([&] {
    absl::MutexLock lock(&mutex);
    const absl::Time deadline = absl::Now() + kTimeout;
    while (!changed.WaitWithDeadline(&mutex, deadline)) {
    }
    ended = true;
  });
  waker.join();
}

// Threads hand a turn around with timed and untimed waits: no wake-up may be lost.
TEST(SteadyWaitsTest, WhatIsWaitedForEndsTheWait) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 2000;
  absl::Mutex mutex;
  int turn = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        absl::MutexLock lock(&mutex);
        const auto mine = [&] { return turn % kThreads == i; };
        if (round % 2 == 0) {
          mutex.Await(absl::Condition(&mine));
        } else {
          ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&mine), absl::Minutes(2)));
        }
        ++turn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turn, kThreads * kRounds);
}

}  // namespace
}  // namespace oxbow
