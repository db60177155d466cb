// SPDX-License-Identifier: Apache-2.0
#include "core/reward/picture_statistics.h"

#include <cmath>

#include "base/philox.h"
#include "gtest/gtest.h"

namespace oxbow::reward {
namespace {

Image8 Grey(int width, int height, std::vector<uint8_t> pixels) {
  return {width, height, 1, std::move(pixels)};
}

TEST(PictureStatisticsTest, OneColourHasItsLumaAndNothingElse) {
  const Image8 black = Grey(3, 2, std::vector<uint8_t>(6, 0));
  EXPECT_DOUBLE_EQ(Brightness(black), 0);
  EXPECT_DOUBLE_EQ(EdgeDensity(black), 0);
  EXPECT_DOUBLE_EQ(ColourEntropy(black), 0);
  EXPECT_DOUBLE_EQ(Brightness(Grey(1, 1, {255})), 1);
  EXPECT_NEAR(Brightness({1, 1, 3, {255, 0, 0}}), .299, 1e-12);
  EXPECT_NEAR(Brightness({1, 1, 3, {0, 255, 0}}), .587, 1e-12);
  EXPECT_NEAR(Brightness({1, 1, 3, {0, 0, 255}}), .114, 1e-12);
}

// On a checkerboard every pixel but the last, which has no neighbour to the right or below, differs
// from one.
TEST(PictureStatisticsTest, ACheckerboardIsAllEdgesAndOneBit) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 64; ++i) pixels.push_back((i / 8 + i) % 2 == 0 ? 0 : 255);
  const Image8 board = Grey(8, 8, pixels);
  EXPECT_DOUBLE_EQ(Brightness(board), 0.5);
  EXPECT_DOUBLE_EQ(EdgeDensity(board), 63. / 64);
  EXPECT_DOUBLE_EQ(ColourEntropy(board), 1);
}

TEST(PictureStatisticsTest, AGentleGradientHasNoEdges) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 16 * 16; ++i) pixels.push_back(static_cast<uint8_t>(i % 16 * 16));
  const Image8 gradient = Grey(16, 16, pixels);
  EXPECT_DOUBLE_EQ(EdgeDensity(gradient), 0);    // 16 / 255 is below the threshold.
  EXPECT_DOUBLE_EQ(ColourEntropy(gradient), 3);  // Each of the 8 levels equally often.
}

TEST(PictureStatisticsTest, NoiseHasNearlyTheLargestEntropyAndManyEdges) {
  RandomStream stream({.seed = 4});
  Image8 noise{128, 128, 3, {}};
  for (int i = 0; i < 128 * 128 * 3; ++i) {
    noise.pixels.push_back(static_cast<uint8_t>(stream.NextBelow(256)));
  }
  EXPECT_GT(ColourEntropy(noise), 8.9);
  EXPECT_LE(ColourEntropy(noise), 9);
  EXPECT_GT(EdgeDensity(noise), 0.8);
  EXPECT_NEAR(Brightness(noise), 0.5, 0.02);
}

TEST(PictureStatisticsTest, APixelIsSaturatedAtAnEndOrWhereItsColourIsStrong) {
  EXPECT_DOUBLE_EQ(SaturatedShare(Grey(2, 2, {0, 255, 1, 254})), 0.5);
  EXPECT_DOUBLE_EQ(SaturatedShare({4, 1, 3, {10, 137, 50, 10, 138, 50, 0, 5, 9, 90, 90, 90}}), 0.5);
}

// A ramp, a step and white noise have numbers in closed form.
TEST(PictureStatisticsTest, FineDetailAndSharpnessOfKnownPictures) {
  Image8 ramp{64, 64, 1, {}}, step{64, 64, 1, {}}, noise{256, 256, 3, {}};
  for (int i = 0; i < 64 * 64; ++i) {
    ramp.pixels.push_back(static_cast<uint8_t>(2 * (i % 64) + i / 64));
    step.pixels.push_back(i % 64 < 32 ? 60 : 160);
  }
  RandomStream stream({.seed = 4});
  for (int i = 0; i < 256 * 256; ++i) {
    noise.pixels.insert(noise.pixels.end(), 3, static_cast<uint8_t>(stream.NextBelow(256)));
  }
  EXPECT_NEAR(FineDetail(ramp), 0, 1e-12);
  EXPECT_NEAR(Sharpness(ramp), 0.25, 1e-12);
  // Changes of one pixel are in one column of 63, those over four pixels in four of 60; along
  // columns there are none.
  EXPECT_NEAR(Sharpness(step), std::sqrt(1. / (2 * 63) / (4. / (2 * 60))), 1e-12);
  // Two of 62 columns are a quarter of the step off their neighbours' mean.
  EXPECT_NEAR(FineDetail(step), 100. / 255 / 4 * std::sqrt(2. / 62), 1e-12);
  const double deviation = std::sqrt(1. / 12) * 256 / 255;
  EXPECT_NEAR(FineDetail(noise), deviation * std::sqrt(1.25), 0.003);
  EXPECT_NEAR(Sharpness(noise), 1, 0.01);
  EXPECT_EQ(FineDetail(Grey(2, 2, {0, 9, 9, 0})), 0);
  EXPECT_EQ(Sharpness(Grey(4, 1, {0, 9, 9, 0})), 0);
  EXPECT_EQ(Sharpness(Grey(8, 8, std::vector<uint8_t>(64, 7))), 0);
}

}  // namespace
}  // namespace oxbow::reward
