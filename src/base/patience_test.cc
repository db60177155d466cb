// SPDX-License-Identifier: Apache-2.0
#include "base/patience.h"

#include <algorithm>

#include "base/exit_code.h"
#include "gtest/gtest.h"

namespace oxbow {
namespace {

// A disk that is full for `full`, and what Insist makes of it.
struct FullDisk {
  explicit FullDisk(absl::Duration full) : full(full) {}

  absl::Status Insist(absl::Duration limit) {
    return oxbow::Insist(
        clock, limit,
        [&]() -> absl::Status {
          ++tries;
          if (clock.Now() >= full) return absl::OkStatus();
          return absl::ResourceExhaustedError("No space left on device: /a");
        },
        [&](const absl::Status&, absl::Duration pause) {
          longest = std::max(longest, pause);
          clock.Advance(pause);
          return stop;
        });
  }

  absl::Duration full;
  FakeClock clock;
  int tries = 0;
  absl::Duration longest;
  absl::Status stop;
};

// Promise: A disk that fails for a while ends no run. ENOSPC, EIO, ESTALE and the like on a write
// to the run's directory: the learner tries again for `services.patience_minutes`, with pauses of
// up to 60 s, and says why. A checkpoint is tried again at the next steps, and ends the run after 5
// failures in a row that took longer than that. Each step is in `steps.jsonl` and `metrics.jsonl`
// once. Reading a checkpoint at the start waits the same way: only damage makes an older one be
// taken, and what is damaged is renamed.
TEST(PatienceTest, TwoMinutesOfAFullDiskEndNothing) {
  FullDisk disk(absl::Seconds(120));
  EXPECT_TRUE(disk.Insist(absl::Minutes(30)).ok());
  EXPECT_EQ(disk.tries, 8) << "after 0, 1, 3, 7, 15, 31, 63 and 123 s";
}

// Promise: A disk that fails for a while ends no run.
TEST(PatienceTest, PausesGrowToAMinuteAndTheLimitIsOne) {
  FullDisk disk(absl::InfiniteDuration());
  const absl::Status status = disk.Insist(absl::Minutes(30));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("over 30m: No space left on device: /a"), std::string::npos)
      << status;
  EXPECT_EQ(disk.longest, absl::Seconds(60));
  EXPECT_EQ(disk.clock.Now(), absl::Minutes(30)) << "the last try is at its end";
}

TEST(PatienceTest, WhatStaysIsNotTriedAgainAndAWaitMayBeEnded) {
  for (const absl::Status& stays :
       {absl::PermissionDeniedError("x"), absl::DataLossError("x"), absl::InternalError("x"),
        absl::InvalidArgumentError("x"), OutOfMemoryError("x")}) {
    EXPECT_FALSE(MayPass(stays)) << stays;
  }
  FullDisk disk(absl::InfiniteDuration());
  disk.stop = absl::CancelledError("drained");
  EXPECT_TRUE(absl::IsCancelled(disk.Insist(absl::Minutes(30))));
  EXPECT_EQ(disk.tries, 1);
}

TEST(PatienceTest, ASuccessBeginsANewSeries) {
  FakeClock clock;
  Patience patience(clock, absl::Seconds(10));
  EXPECT_EQ(patience.Failed(), absl::Seconds(1));
  EXPECT_EQ(patience.Failed(), absl::Seconds(2));
  clock.Advance(absl::Seconds(9.5));
  EXPECT_EQ(patience.Failed(), absl::Seconds(0.5));
  patience.Succeeded();
  EXPECT_EQ(patience.Failed(), absl::Seconds(1));
  EXPECT_FALSE(patience.over());
  clock.Advance(absl::Seconds(10));
  EXPECT_EQ(patience.Failed(), absl::Seconds(2)) << "for those who go on all the same";
  EXPECT_TRUE(patience.over());
  EXPECT_EQ(patience.failures(), 2u);
}

}  // namespace
}  // namespace oxbow
