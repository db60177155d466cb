// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "io/image.h"

namespace oxbow::io {
namespace {

Image8 RandomImage(int width, int height, int channels, uint32_t seed) {
  std::mt19937 generator(seed);
  Image8 image{width, height, channels, {}};
  image.pixels.resize(static_cast<size_t>(width) * height * channels);
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(generator());
  return image;
}

TEST(PngTest, ReadsBackEveryPixelOfGreyAndColour) {
  for (const int channels : {1, 3}) {
    for (const auto& [width, height] :
         std::vector<std::pair<int, int>>{{1, 1}, {20, 8}, {7, 33}, {300, 2}}) {
      const Image8 image = RandomImage(width, height, channels, 17);
      const auto decoded = DecodePng(EncodePng(image));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_TRUE(*decoded == image) << width << "x" << height << "x" << channels;
    }
  }
}

TEST(PngTest, EveryTruncationIsAnError) {
  const std::string bytes = EncodePng(RandomImage(20, 8, 1, 3));
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(DecodePng(std::string_view(bytes).substr(0, length)).ok()) << length;
  }
}

TEST(PngTest, AChangedPixelByteIsDataLoss) {
  std::string bytes = EncodePng(RandomImage(64, 64, 3, 5));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x40);
  EXPECT_EQ(DecodePng(bytes).status().code(), absl::StatusCode::kDataLoss);
}

TEST(PngTest, RefusesMorePixelsThanTheLimitBeforeAllocating) {
  const std::string bytes = EncodePng(RandomImage(40, 30, 1, 1));
  EXPECT_TRUE(DecodePng(bytes, 1200).ok());
  EXPECT_EQ(DecodePng(bytes, 1199).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DecodePng("GIF89a").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PngTest, TheHeaderSaysTheShapeOfTheImage) {
  for (const int channels : {1, 3}) {
    const std::string bytes = EncodePng(RandomImage(40, 30, channels, 1));
    EXPECT_EQ(ShapeOfPng(bytes).value(), (ImageShape{40, 30, channels}));
  }
  EXPECT_EQ(ShapeOfPng("GIF89a").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow::io
