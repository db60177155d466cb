// SPDX-License-Identifier: Apache-2.0
// Waits just after a step of the wall clock, while Abseil's clock still follows the old one.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/clock.h"
#include "tests/testing/wall_clock_stepped.h"

namespace oxbow {
namespace {

constexpr absl::Duration kTimeout = absl::Milliseconds(30);

// How long a wait takes that ends at `end`. A wait of an hour cannot be ended, so it ends the test.
absl::Duration TimeOfWaitUntil(const std::function<absl::Time()>& end) {
  const absl::Duration start = Clock::Steady().Now();
  std::future<void> ended = std::async(std::launch::async, [&] {
    absl::Mutex mutex;
    absl::CondVar never;
    absl::MutexLock lock(&mutex);
    never.WaitWithDeadline(&mutex, end());
  });
  OXBOW_CHECK(ended.wait_for(std::chrono::seconds(60)) == std::future_status::ready)
      << "the wait follows the wall clock";
  return Clock::Steady().Now() - start;
}

class SteppedWaitsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  // Abseil interpolates once it has seen its clock run for about a second.
  void SetUp() override {
    const absl::Duration end = Clock::Steady().Now() + absl::Seconds(3);
    while (Clock::Steady().Now() < end) absl::Now();
    oxbow_wall_clock_ahead += GetParam();
    if (absl::AbsDuration(absl::Now() - SystemNow()) < absl::Minutes(1)) {
      GTEST_SKIP() << "this Abseil has no clock of its own";
    }
  }
  static absl::Time SystemNow() { return absl::FromChrono(std::chrono::system_clock::now()); }
};
INSTANTIATE_TEST_SUITE_P(Seconds, SteppedWaitsTest, ::testing::Values(3600, -3600));

// As gRPC's.
// Promise: A stalled worker delays nobody.
TEST_P(SteppedWaitsTest, AWaitForATimeOfTheSystemsClockLastsAsLongAsItShould) {
  const absl::Duration took = TimeOfWaitUntil([] { return SystemNow() + kTimeout; });
  EXPECT_GE(took, kTimeout - absl::Milliseconds(5));
}

// As Abseil's own, and ours.
// Promise: A stalled worker delays nobody.
TEST_P(SteppedWaitsTest, AWaitForATimeOfAbseilsClockLastsAsLongAsItShould) {
  const absl::Duration took = TimeOfWaitUntil([] { return absl::Now() + kTimeout; });
  EXPECT_GE(took, kTimeout - absl::Milliseconds(5));
}

TEST_P(SteppedWaitsTest, AWaitForATimeThatHasPassedEndsAtOnce) {
  EXPECT_LT(TimeOfWaitUntil([] { return SystemNow() - kTimeout; }), absl::Seconds(30));
  EXPECT_LT(TimeOfWaitUntil([] { return absl::Now() - kTimeout; }), absl::Seconds(30));
}

}  // namespace
}  // namespace oxbow
