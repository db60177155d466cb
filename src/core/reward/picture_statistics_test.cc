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
  const PictureStatistics black = StatisticsOf(Grey(3, 2, std::vector<uint8_t>(6, 0)));
  EXPECT_DOUBLE_EQ(black.brightness, 0);
  EXPECT_DOUBLE_EQ(black.edge_density, 0);
  EXPECT_DOUBLE_EQ(black.colour_entropy, 0);
  EXPECT_DOUBLE_EQ(StatisticsOf(Grey(1, 1, {255})).brightness, 1);
  EXPECT_NEAR(StatisticsOf({1, 1, 3, {255, 0, 0}}).brightness, .299, 1e-12);
  EXPECT_NEAR(StatisticsOf({1, 1, 3, {0, 255, 0}}).brightness, .587, 1e-12);
  EXPECT_NEAR(StatisticsOf({1, 1, 3, {0, 0, 255}}).brightness, .114, 1e-12);
}

// On a checkerboard every pixel but the last, which has no neighbour to the right or below, differs
// from one.
TEST(PictureStatisticsTest, ACheckerboardIsAllEdgesAndOneBit) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 64; ++i) pixels.push_back((i / 8 + i) % 2 == 0 ? 0 : 255);
  const PictureStatistics board = StatisticsOf(Grey(8, 8, pixels));
  EXPECT_DOUBLE_EQ(board.brightness, 0.5);
  EXPECT_DOUBLE_EQ(board.edge_density, 63. / 64);
  EXPECT_DOUBLE_EQ(board.colour_entropy, 1);
}

TEST(PictureStatisticsTest, AGentleGradientHasNoEdges) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 16 * 16; ++i) pixels.push_back(static_cast<uint8_t>(i % 16 * 16));
  const PictureStatistics gradient = StatisticsOf(Grey(16, 16, pixels));
  EXPECT_DOUBLE_EQ(gradient.edge_density, 0);    // 16 / 255 is below the threshold.
  EXPECT_DOUBLE_EQ(gradient.colour_entropy, 3);  // Each of the 8 levels equally often.
}

TEST(PictureStatisticsTest, NoiseHasNearlyTheLargestEntropyAndManyEdges) {
  RandomStream stream({.seed = 4});
  Image8 noise{128, 128, 3, {}};
  for (int i = 0; i < 128 * 128 * 3; ++i) {
    noise.pixels.push_back(static_cast<uint8_t>(stream.NextBelow(256)));
  }
  const PictureStatistics statistics = StatisticsOf(noise);
  EXPECT_GT(statistics.colour_entropy, 8.9);
  EXPECT_LE(statistics.colour_entropy, 9);
  EXPECT_GT(statistics.edge_density, 0.8);
  EXPECT_NEAR(statistics.brightness, 0.5, 0.02);
}

}  // namespace
}  // namespace oxbow::reward
