// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <numeric>

#include "gtest/gtest.h"
#include "rewards/instance_detector.h"

namespace oxbow::rewards {
namespace {

// Two queries of three classes on a map of 2 x 2; nothing is padded or resized.
constexpr DetectorSizes kSizes{
    .image = {.width = 2, .height = 2}, .resized = {.width = 2, .height = 2}, .input = {2, 2}};

at::Tensor Classes(float sure) {
  return at::tensor({0.F, sure, 0.F, 0.F, 0.F, 0.F, 0.F, sure}).view({2, 4});
}
at::Tensor Masks() {
  return at::tensor({4.F, -4.F, -4.F, -4.F, 1.F, 1.F, 1.F, 1.F}).view({2, 2, 2});
}

TEST(InstanceMasksTest, AScoreIsThatOfTheClassTimesThatOfTheMask) {
  const auto found = InstancesOf(Classes(5), Masks(), kSizes, 0.3F);
  ASSERT_EQ(found.size(), 1u);  // The second query is of nothing.
  const double sure = std::exp(5.0) / (std::exp(5.0) + 3), inside = 1 / (1 + std::exp(-4.0));
  EXPECT_NEAR(found[0].detection.score, sure * inside, 1e-5);
  EXPECT_EQ(found[0].detection.thing, 1);
  EXPECT_EQ(found[0].detection.box, (std::array<float, 4>{0, 0, 1, 1}));
  EXPECT_EQ(found[0].mask, (std::vector<uint8_t>{1, 0, 0, 0}));
}

TEST(InstanceMasksTest, AnEmptyMaskHasTheScoreZero) {
  const at::Tensor outside = at::full({2, 2, 2}, -1.0);
  EXPECT_TRUE(InstancesOf(Classes(5), outside, kSizes, 0).empty());
  const auto all = InstancesOf(Classes(5), outside, kSizes, -1);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].detection.score, 0);
  EXPECT_EQ(all[0].detection.box, (std::array<float, 4>{}));
}

TEST(InstanceMasksTest, TheBestHundredAreInstancesWhateverTheNumberOfQueries) {
  const at::Tensor classes = at::zeros({10'000, 4});
  EXPECT_EQ(InstancesOf(classes, at::ones({10'000, 2, 2}), kSizes, 0).size(), 100u);
}

TEST(InstanceMasksTest, WhatLiesInThePaddingIsCutOff) {
  const DetectorSizes sizes{.image = {.width = 2, .height = 2},
                            .resized = {.width = 2, .height = 2},
                            .input = {.width = 4, .height = 2}};
  at::Tensor masks = at::full({2, 2, 4}, -4.0);
  masks.narrow(2, 2, 2).fill_(4);  // To the right of the image.
  EXPECT_TRUE(InstancesOf(Classes(9), masks, sizes, 0.1F).empty());
  const auto everywhere = InstancesOf(Classes(9), at::full({2, 2, 4}, 4.0), sizes, 0.1F);
  ASSERT_EQ(everywhere.size(), 1u);
  EXPECT_EQ(everywhere[0].detection.box, (std::array<float, 4>{0, 0, 2, 2}));
}

TEST(InstanceMasksTest, LogitsAreResizedToTheImage) {
  const DetectorSizes sizes{.image = {.width = 6, .height = 6},
                            .resized = {.width = 4, .height = 4},
                            .input = {.width = 4, .height = 4}};
  const auto found = InstancesOf(Classes(9), Masks(), sizes, 0.1F);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].mask.size(), 36u);
  EXPECT_EQ(found[0].detection.box[0], 0);
  EXPECT_LE(found[0].detection.box[2], 3);
  EXPECT_EQ(std::accumulate(found[0].mask.begin(), found[0].mask.end(), 0),
            static_cast<int>(std::count(found[0].mask.begin(), found[0].mask.end(), 1)));
}

}  // namespace
}  // namespace oxbow::rewards
