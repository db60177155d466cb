// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/gpu_processes.h"

#include <algorithm>

#include "base/exit_code.h"
#include "gtest/gtest.h"

namespace oxbow::rollout {
namespace {

constexpr int kKilled = 128 + 9;

// Promise: A worker for each GPU.

TEST(RestartsTest, WhatTheSameStartWouldEndAgainIsNotStartedAgain) {
  for (const int code : {kExitOk, kExitUsage, kExitUnavailable, kExitData, kExitOutOfMemory}) {
    Restarts restarts;
    restarts.Started(absl::Seconds(5));
    EXPECT_EQ(restarts.DueAfter(code, absl::Seconds(6), false), absl::InfiniteDuration()) << code;
  }
}

TEST(RestartsTest, BesideAnotherThatLivesItIsStartedForEverInGrowingPauses) {
  for (const int code : {int{kExitUsage}, int{kExitOutOfMemory}, int{kExitDeviceLost}, kKilled}) {
    Restarts restarts;
    absl::Duration now;
    for (int second = 1; second < 1000; second *= 2) {
      restarts.Started(now);
      const absl::Duration due = restarts.DueAfter(code, now, true);
      EXPECT_EQ(due - now, absl::Seconds(std::min(second, 600))) << code;
      now = due;
    }
  }
}

TEST(RestartsTest, ADeathIsForgottenAfterAMinuteOfLifeAndFiveInARowAreTooMany) {
  Restarts restarts;
  absl::Duration now;
  const auto dies_after = [&](absl::Duration life) {
    restarts.Started(now);
    now += life;
    return restarts.DueAfter(kKilled, now, false) - now;
  };
  EXPECT_EQ(dies_after(absl::Seconds(1)), absl::Seconds(1));
  EXPECT_EQ(dies_after(absl::Seconds(1)), absl::Seconds(2));
  EXPECT_EQ(dies_after(absl::Minutes(1)), absl::Seconds(1));
  for (const int seconds : {2, 4, 8}) {
    EXPECT_EQ(dies_after(absl::Seconds(59)), absl::Seconds(seconds));
  }
  EXPECT_EQ(dies_after(absl::Seconds(59)), absl::InfiniteDuration());
}

TEST(ExitCodeTest, AnErrorOfAnExitCodeEndsWithIt) {
  for (int code = kExitFailure; code <= kExitDeviceLost; ++code) {
    EXPECT_EQ(ExitCodeOf(ErrorOf(code, "why")), code);
  }
  EXPECT_EQ(ExitCodeOf(ErrorOf(kKilled, "why")), kExitFailure);
  EXPECT_TRUE(EndsEarly(ErrorOf(kExitStopped, "")) && EndsEarly(ErrorOf(kExitDrained, "")));
  EXPECT_FALSE(EndsEarly(ErrorOf(kExitDeviceLost, "")) || EndsEarly(absl::OkStatus()));
}

}  // namespace
}  // namespace oxbow::rollout
