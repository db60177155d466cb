// SPDX-License-Identifier: Apache-2.0
// The run that all others must equal, for every launcher and every process that dies.
#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/launchers/launched_run.h"

namespace oxbow::testing {

inline constexpr int kSteps = 6;

inline std::vector<std::string> SmallDeterministicRun() {
  return {"run.steps=" + std::to_string(kSteps),
          "run.deterministic=true",
          "checkpoint.every=2",
          "replay.fraction=0.25",
          "services.lease_seconds=3",
          "learner.rank_timeout_seconds=10"};
}

// The results that a run left: its losses and the bytes of its weights.
struct Left {
  explicit Left(const LaunchedRun& run)
      : losses(run.files().Series("train/loss")), weights(run.files().FinalWeights()) {}
  std::vector<double> losses;
  std::string weights;
};

// `learner --ranks 2`, undisturbed.
inline const Left& WithoutALauncher() {
  static const Left left = [] {
    LaunchedRun run(SmallDeterministicRun());
    run.Work(run.Launch({.after = {"--ranks", "2"}}));
    EXPECT_EQ(run.WaitExit(), std::vector<int>{0});
    return Left(run);
  }();
  return left;
}

inline void ExpectTheSameBits(const LaunchedRun& run) {
  const Left& expected = WithoutALauncher();
  const Left left(run);
  ASSERT_EQ(expected.losses.size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(left.losses, expected.losses);
  EXPECT_FALSE(left.weights.empty());
  EXPECT_TRUE(left.weights == expected.weights) << "other bytes";
}

}  // namespace oxbow::testing
