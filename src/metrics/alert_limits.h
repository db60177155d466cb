// SPDX-License-Identifier: Apache-2.0
// Limits that alerts and the verdict on a run share. The alerts spell them as numbers in
// deploy/prometheus/rules/oxbow.rules.yml; a test compares the two.
#pragma once

namespace oxbow::metric {

struct AlertLimit {
  double value;
  const char* alert;    // The rule in oxbow.rules.yml.
  const char* written;  // How its expression spells the limit.
};

// clang-format off
// Share of groups whose rewards are all equal.
inline constexpr AlertLimit kZeroStdRatioMax{0.8, "OxbowZeroStdRatioHigh", "> 0.8"};
// Share of trained rows that the clip silences.
inline constexpr AlertLimit kClipZeroGradMax{0.5, "OxbowClipFractionSaturated", "> 0.5"};
// The recent mean of the gradient norm, in medians of the run.
inline constexpr AlertLimit kGradNormMediansMax{10, "OxbowGradientExploding", "> 10 *"};
// Share of steps that train no sample.
inline constexpr AlertLimit kIdleStepsMax{0.5, "OxbowStepsTrainNothing", "> 0.5 *"};
// Relative change at which the training reward rises and the held-out one falls.
inline constexpr AlertLimit kRewardsApartMin{0.03, "OxbowRewardUpHeldOutDown", "< -0.03 *"};
// clang-format on

}  // namespace oxbow::metric
