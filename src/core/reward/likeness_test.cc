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
  const auto likeness = LikenessOf({Flat(0), Flat(255)}, 0.5);
  for (const Likeness& l : likeness) {
    EXPECT_DOUBLE_EQ(l.mean_distance, 1);
    EXPECT_DOUBLE_EQ(l.duplicate_share, 0.5);
  }
}

TEST(LikenessTest, DistanceIsTheRootMeanSquareOverPixels) {
  Image8 one = Flat(0);
  one.pixels[4] = 255;  // One of six.
  EXPECT_DOUBLE_EQ(LikenessOf({Flat(0), one}, 0.1)[0].mean_distance, std::sqrt(1. / 6));
}

// Two clusters of 5 and 3 members: shares are cluster sizes, and noise below the radius changes
// nothing.
TEST(LikenessTest, MembersWithinTheRadiusAreDuplicates) {
  RandomStream stream({.seed = 11});
  std::vector<Image8> images;
  for (int i = 0; i < 8; ++i) {
    Image8 image = Flat(i < 5 ? 40 : 200);
    for (uint8_t& pixel : image.pixels) {
      pixel = static_cast<uint8_t>(pixel + stream.NextBelow(20));
    }
    images.push_back(std::move(image));
  }
  const auto likeness = LikenessOf(images, 0.3);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(likeness[i].duplicate_share, i < 5 ? 5. / 8 : 3. / 8) << i;
  }
}

TEST(LikenessTest, AnImageAloneIsItsOnlyDuplicate) {
  const auto likeness = LikenessOf({Flat(9)}, 0.3);
  EXPECT_DOUBLE_EQ(likeness[0].mean_distance, 0);
  EXPECT_DOUBLE_EQ(likeness[0].duplicate_share, 1);
}

}  // namespace
}  // namespace oxbow::reward
