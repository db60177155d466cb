// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/gpu_processes.h"

#include "base/exit_code.h"
#include "gtest/gtest.h"

namespace oxbow::rollout {
namespace {

constexpr int kKilled = 128 + 9;

TEST(RestartsTest, WhatTheSameStartWouldEndAgainIsNotStartedAgain) {
  for (const int code : {kExitOk, kExitUsage, kExitUnavailable, kExitData, kExitOutOfMemory}) {
    Restarts restarts;
    restarts.Started(absl::Seconds(5));
    EXPECT_EQ(restarts.DueAfter(code, absl::Seconds(6)), absl::InfiniteDuration()) << code;
  }
}

TEST(RestartsTest, ADeathIsForgottenAfterAMinuteOfLifeAndFiveInARowAreTooMany) {
  Restarts restarts;
  absl::Duration now;
  const auto dies_after = [&](absl::Duration life) {
    restarts.Started(now);
    now += life;
    return restarts.DueAfter(kKilled, now) - now;
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
  for (int code = kExitFailure; code <= kExitOutOfMemory; ++code) {
    EXPECT_EQ(ExitCodeOf(ErrorOf(code, "why")), code);
  }
  EXPECT_EQ(ExitCodeOf(ErrorOf(kKilled, "why")), kExitFailure);
}

}  // namespace
}  // namespace oxbow::rollout
