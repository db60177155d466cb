// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/file.h"
#include "gtest/gtest.h"
#include "io/image.h"
#include "nlohmann/json.hpp"

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

// Rewards are trained and measured on what Pillow reads: tools/make_picture_goldens.py.
// Promise: Pictures are read as Pillow reads them. Alpha is dropped, of 16 bits the upper 8 stay,
// and no gamma is corrected, in PNG files of every kind.
TEST(PngTest, EveryKindIsReadAsPillowReadsIt) {
  const char* const folder = std::getenv("OXBOW_REWARD_GOLDENS");
  ASSERT_NE(folder, nullptr);
  const auto golden = nlohmann::json::parse(*ReadFile(std::string(folder) + "/pictures.json"));
  for (const auto& one : golden["pictures"]) {
    const auto image = DecodePng(absl::HexStringToBytes(one["png"].get<std::string>()));
    ASSERT_TRUE(image.ok()) << one["name"] << ": " << image.status();
    EXPECT_EQ(image->width, one["width"]);
    EXPECT_EQ(image->height, one["height"]);
    std::string rgb;
    for (size_t i = 0; i < image->pixels.size(); ++i) {
      rgb.append(image->channels == 1 ? 3 : 1, static_cast<char>(image->pixels[i]));
    }
    EXPECT_EQ(absl::BytesToHexString(rgb), one["rgb"]) << one["name"];
  }
  EXPECT_GT(golden["pictures"].size(), 12u);
}

// A grey picture of 2 x 1 pixels: 0x80ff, 0x0001. Pillow clips these to white; other kinds of 16
// bits lose their lower half, and so do these.
TEST(PngTest, GreyOfSixteenBitsLosesItsLowerHalf) {
  const auto image = DecodePng(absl::HexStringToBytes(
      "89504e470d0a1a0a0000000d494844520000000200000001100000000081d9fc15"
      "0000000d49444154789c6368f8cfc0080005030181d8097f500000000049454e44ae426082"));
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->channels, 1);
  EXPECT_EQ(image->pixels, (std::vector<uint8_t>{0x80, 0x00}));
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
