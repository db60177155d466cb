// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "services/reward/reward_directory.h"

namespace oxbow::reward {
namespace {

constexpr absl::Duration kTrial = absl::Seconds(30);

// Promise: A run waits for its reward servers.
TEST(CircuitBreakerTest, RestsDoubleUpToTheLongestAndAnAnswerEndsThem) {
  CircuitBreaker breaker({.rest_first = absl::Seconds(1), .rest_max = absl::Seconds(5)});
  EXPECT_TRUE(breaker.Admits(absl::ZeroDuration(), kTrial));
  absl::Duration now;
  for (const int rest : {1, 2, 4, 5, 5}) {
    breaker.Failed(now, /*jitter=*/1);
    EXPECT_FALSE(breaker.Admits(now + absl::Seconds(rest) - absl::Nanoseconds(1), kTrial));
    now += absl::Seconds(rest);
    EXPECT_EQ(breaker.next(), now);
    EXPECT_TRUE(breaker.Admits(now, kTrial));
  }
  breaker.Answered();
  EXPECT_TRUE(breaker.Admits(now, kTrial));
  EXPECT_TRUE(breaker.Admits(now, kTrial));
}

TEST(CircuitBreakerTest, AfterARestOneCallerTriesAtATime) {
  CircuitBreaker breaker({.rest_first = absl::Seconds(1)});
  breaker.Failed(absl::ZeroDuration(), 1);
  EXPECT_TRUE(breaker.Admits(absl::Seconds(1), kTrial));
  EXPECT_FALSE(breaker.Admits(absl::Seconds(2), kTrial));
  // The first caller is gone without a word.
  EXPECT_TRUE(breaker.Admits(absl::Seconds(1) + kTrial, kTrial));
}

TEST(CircuitBreakerTest, JitterSpreadsRestsOverTheirSecondHalf) {
  for (const double jitter : {0., 0.25, 1.}) {
    CircuitBreaker breaker({.rest_first = absl::Seconds(8)});
    breaker.Failed(absl::Seconds(100), jitter);
    EXPECT_EQ(breaker.next(), absl::Seconds(104 + 4 * jitter)) << jitter;
  }
}

TEST(CircuitBreakerTest, ARestIsNoShorterThanThePauseThatTheServerAskedFor) {
  for (const double jitter : {0., 1.}) {
    CircuitBreaker breaker({.rest_first = absl::Seconds(1), .rest_max = absl::Seconds(2)});
    breaker.Failed(absl::Seconds(100), jitter, absl::Seconds(4));
    EXPECT_EQ(breaker.next(), absl::Seconds(104 + jitter));
    breaker.Failed(absl::Seconds(200), 1, absl::Milliseconds(5));
    EXPECT_EQ(breaker.next(), absl::Seconds(202));
  }
}

}  // namespace
}  // namespace oxbow::reward
