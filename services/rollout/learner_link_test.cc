// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/learner_link.h"

#include <gtest/gtest.h>

namespace oxbow::rollout {
namespace {

TEST(SamplerProgressTest, AStandstillIsAPauseBeyondTheLimit) {
  FakeClock clock;
  SamplerProgress progress(clock, absl::Seconds(120));
  clock.Advance(absl::Seconds(120));
  EXPECT_FALSE(progress.Stalled());
  clock.Advance(absl::Seconds(1));
  EXPECT_TRUE(progress.Stalled());
  progress.Advanced();
  EXPECT_FALSE(progress.Stalled());
}

TEST(SamplerProgressTest, ASlowDeviceIsTakenForOneThatHangsOnce) {
  FakeClock clock;
  SamplerProgress progress(clock, absl::Seconds(120));
  int stalled = 0;
  for (int pass = 0; pass < 10; ++pass) {
    clock.Advance(absl::Seconds(200));
    stalled += progress.Stalled();
    progress.Advanced();
  }
  EXPECT_EQ(stalled, 1);
  clock.Advance(absl::Seconds(401));
  EXPECT_TRUE(progress.Stalled());
}

}  // namespace
}  // namespace oxbow::rollout
