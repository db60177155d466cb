#include "core/reward/likeness.h"

#include <cmath>

#include "base/philox.h"
#include "gtest/gtest.h"

namespace oxbow::reward {
namespace {

Picture Flat(int value) {
  return {.width = 3, .height = 2, .pixels = std::string(6, static_cast<char>(value))};
}

TEST(LikenessTest, BlackAndWhiteAreOneApart) {
  const auto likeness = LikenessOf({Flat(0), Flat(255)}, 0.5);
  for (const Likeness& l : likeness) {
    EXPECT_DOUBLE_EQ(l.mean_distance, 1);
    EXPECT_DOUBLE_EQ(l.niche_share, 0.5);
  }
}

TEST(LikenessTest, DistanceIsTheRootMeanSquareOverPixels) {
  Picture one = Flat(0);
  one.pixels[4] = static_cast<char>(255);  // One of six.
  EXPECT_DOUBLE_EQ(LikenessOf({Flat(0), one}, 0.1)[0].mean_distance, std::sqrt(1. / 6));
}

// Two clusters of 5 and 3 members: shares are cluster sizes, and noise below the radius changes
// nothing.
TEST(LikenessTest, MembersWithinTheRadiusShareANiche) {
  RandomStream stream({.seed = 11});
  std::vector<Picture> pictures;
  for (int i = 0; i < 8; ++i) {
    Picture picture = Flat(i < 5 ? 40 : 200);
    for (char& pixel : picture.pixels) {
      pixel = static_cast<char>(static_cast<unsigned char>(pixel) + stream.NextBelow(20));
    }
    pictures.push_back(std::move(picture));
  }
  const auto likeness = LikenessOf(pictures, 0.3);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(likeness[i].niche_share, i < 5 ? 5. / 8 : 3. / 8) << i;
  }
}

TEST(LikenessTest, APictureAloneIsItsNiche) {
  const auto likeness = LikenessOf({Flat(9)}, 0.3);
  EXPECT_DOUBLE_EQ(likeness[0].mean_distance, 0);
  EXPECT_DOUBLE_EQ(likeness[0].niche_share, 1);
}

}  // namespace
}  // namespace oxbow::reward
