// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/communication_clock.h"

#include <gtest/gtest.h>

namespace oxbow::parallel {
namespace {

TEST(CommunicationClockTest, OverlappingOperationsCountOnceAndWorkBetweenThemNotAtAll) {
  FakeClock time;
  CommunicationClock clock(time);
  clock.Began();
  time.Advance(absl::Seconds(1));
  clock.Began();
  time.Advance(absl::Seconds(2));
  clock.Ended();
  time.Advance(absl::Seconds(4));
  clock.Ended();
  time.Advance(absl::Seconds(100));
  const CommunicationTime taken = clock.Take();
  EXPECT_EQ(taken.total, absl::Seconds(7));
  EXPECT_EQ(taken.exposed, absl::ZeroDuration());
  EXPECT_EQ(clock.Take().total, absl::ZeroDuration());
}

TEST(CommunicationClockTest, StandingStillIsExposedAndPartOfTheTotal) {
  FakeClock time;
  CommunicationClock clock(time);
  clock.Began();
  time.Advance(absl::Seconds(1));
  clock.StandsStill();
  time.Advance(absl::Seconds(2));
  clock.Ended();
  time.Advance(absl::Seconds(4));
  clock.GoesOn();
  time.Advance(absl::Seconds(100));
  const CommunicationTime taken = clock.Take();
  EXPECT_EQ(taken.total, absl::Seconds(7));
  EXPECT_EQ(taken.exposed, absl::Seconds(6));
}

TEST(CommunicationClockTest, WhatIsUnderWayIsSharedBetweenTwoLooks) {
  FakeClock time;
  CommunicationClock clock(time);
  clock.Began();
  time.Advance(absl::Seconds(1));
  EXPECT_EQ(clock.Take().total, absl::Seconds(1));
  time.Advance(absl::Seconds(2));
  clock.Ended();
  EXPECT_EQ(clock.Take().total, absl::Seconds(2));
}

}  // namespace
}  // namespace oxbow::parallel
