// SPDX-License-Identifier: Apache-2.0
#include "core/reward/likeness.h"

#include <cmath>

#include "base/philox.h"
#include "gtest/gtest.h"

namespace oxbow::reward {
namespace {

Image8 Flat(uint8_t value) {
  return {.width = 3, .height = 2, .pixels = std::vector<uint8_t>(6, value)};
}

TEST(LikenessTest, BlackAndWhiteAreOneApart) {
  const auto likeness = LikenessOf({{Flat(0)}, {Flat(255)}}, 0.5);
  for (const Likeness& l : likeness) {
    EXPECT_DOUBLE_EQ(l.mean_distance, 1);
    EXPECT_DOUBLE_EQ(l.duplicate_share, 0.5);
  }
}

TEST(LikenessTest, DistanceIsTheRootMeanSquareOverPixels) {
  Image8 one = Flat(0);
  one.pixels[4] = 255;  // One of six.
  EXPECT_DOUBLE_EQ(LikenessOf({{Flat(0)}, {one}}, 0.1)[0].mean_distance, std::sqrt(1. / 6));
}

// Whichever frames differ, it is as if one picture had all their pixels.
// Promise: A video is a video everywhere.
TEST(LikenessTest, AVideoIsComparedOverAllItsFrames) {
  Image8 other = Flat(0);
  other.pixels[1] = 255;
  const auto apart = [](const std::vector<Image8>& a, const std::vector<Image8>& b) {
    return LikenessOf({a, b}, 0.1)[0].mean_distance;
  };
  EXPECT_DOUBLE_EQ(apart({Flat(0), Flat(7)}, {other, Flat(7)}), std::sqrt(1. / 12));
  EXPECT_DOUBLE_EQ(apart({Flat(7), Flat(0)}, {Flat(7), other}), std::sqrt(1. / 12));
  EXPECT_DOUBLE_EQ(apart({Flat(0), Flat(255)}, {Flat(255), Flat(0)}), 1);
}

// Two clusters of 5 and 3 members: shares are cluster sizes, and noise below the radius changes
// nothing.
TEST(LikenessTest, MembersWithinTheRadiusAreDuplicates) {
  RandomStream stream({.seed = 11});
  std::vector<std::vector<Image8>> images;
  for (int i = 0; i < 8; ++i) {
    Image8 image = Flat(i < 5 ? 40 : 200);
    for (uint8_t& pixel : image.pixels) {
      pixel = static_cast<uint8_t>(pixel + stream.NextBelow(20));
    }
    images.push_back({std::move(image)});
  }
  const auto likeness = LikenessOf(images, 0.3);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(likeness[i].duplicate_share, i < 5 ? 5. / 8 : 3. / 8) << i;
  }
}

TEST(LikenessTest, AnImageAloneIsItsOnlyDuplicate) {
  const auto likeness = LikenessOf({{Flat(9)}}, 0.3);
  EXPECT_DOUBLE_EQ(likeness[0].mean_distance, 0);
  EXPECT_DOUBLE_EQ(likeness[0].duplicate_share, 1);
}

}  // namespace
}  // namespace oxbow::reward
