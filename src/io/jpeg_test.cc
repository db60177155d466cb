// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/image.h"
#include "tests/golden/reward_golden.h"

namespace oxbow::io {
namespace {

using reward::DigestOf;
using reward::DrawnPicture;
using ::testing::HasSubstr;

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Promise: Rewards are those of their projects.
TEST(JpegTest, BytesAndPixelsAreThoseOfPillow) {
  const auto golden = nlohmann::json::parse(*ReadFile(reward::RewardGolden("jpeg.json")));
  EXPECT_GE(golden["cases"].size(), 60u);
  for (const auto& item : golden["cases"]) {
    const Image8 image =
        DrawnPicture(item["kind"], item["seed"], item["width"], item["height"], item["channels"]);
    const std::string bytes = EncodeJpeg(image, item["quality"]);
    EXPECT_EQ(bytes.size(), item["bytes"]) << item;
    EXPECT_EQ(Sha256Hex(bytes), item["encoded"]) << item;
    const auto decoded = DecodeJpeg(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(DigestOf(*decoded), item["decoded"]) << item;
    if (item["quality"] == 95) {
      EXPECT_DOUBLE_EQ(JpegKilobytes(image), item["bytes"].get<double>() / 1000);
    }
    if (!item.contains("progressive")) continue;
    const auto progressive = DecodeImage(FromHex(item["progressive"]));
    ASSERT_TRUE(progressive.ok()) << progressive.status();
    EXPECT_EQ(DigestOf(*progressive), item["progressive_decoded"]);
  }
}

TEST(JpegTest, AtTheBestQualityASmoothImageHardlyChanges) {
  Image8 image{64, 48, 3, {}};
  for (int i = 0; i < 64 * 48 * 3; ++i)
    image.pixels.push_back(static_cast<uint8_t>(i / 3 % 64 * 2));
  const auto decoded = DecodeJpeg(EncodeJpeg(image, 100));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    EXPECT_NEAR(decoded->pixels[i], image.pixels[i], 3);
  }
}

TEST(JpegTest, NoiseIsHarderToCompressThanOneColour) {
  const Image8 flat{64, 64, 3, std::vector<uint8_t>(64 * 64 * 3, 90)};
  EXPECT_GT(JpegKilobytes(DrawnPicture("noise", 1, 64, 64, 3)), 5 * JpegKilobytes(flat));
}

TEST(JpegTest, EveryTruncationIsAnErrorOfOneLine) {
  const std::string bytes = EncodeJpeg(DrawnPicture("scene", 3, 40, 30, 3), 80);
  for (size_t length = 0; length < bytes.size(); ++length) {
    const absl::Status status = DecodeImage(std::string_view(bytes).substr(0, length)).status();
    EXPECT_FALSE(status.ok()) << length;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  }
}

// The size is in the frame header: two bytes of height, two of width, after FF C0 and three more.
std::string WithSize(std::string bytes, int height, int width) {
  size_t at = bytes.find("\xff\xc0") + 5;
  for (const int value : {height >> 8, height & 255, width >> 8, width & 255}) {
    bytes[at++] = static_cast<char>(value);
  }
  return bytes;
}

TEST(JpegTest, RefusesAnImageOfNoPixelsOrTooManyBeforeAllocating) {
  const std::string bytes = EncodeJpeg(DrawnPicture("noise", 1, 40, 30, 1), 90);
  EXPECT_TRUE(DecodeJpeg(bytes, 1200).ok());
  EXPECT_EQ(DecodeJpeg(bytes, 1199).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status bomb = DecodeJpeg(WithSize(bytes, 65000, 65000)).status();
  EXPECT_THAT(std::string(bomb.message()), HasSubstr("65000x65000 is larger than 67108864 pixels"));
  EXPECT_EQ(DecodeJpeg(WithSize(bytes, 30, 0)).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeJpeg(WithSize(bytes, 0, 40)).status().code(), absl::StatusCode::kDataLoss);
  // More rows than data: nothing is painted in place of what is missing.
  EXPECT_EQ(DecodeJpeg(WithSize(bytes, 4000, 40)).status().code(), absl::StatusCode::kDataLoss);
}

TEST(JpegTest, TheHeaderSaysTheShapeAlsoOfABomb) {
  for (const int channels : {1, 3}) {
    const std::string bytes = EncodeJpeg(DrawnPicture("noise", 1, 40, 30, channels), 90);
    EXPECT_EQ(ShapeOfJpeg(bytes).value(), (ImageShape{40, 30, channels}));
    EXPECT_EQ(ShapeOfJpeg(WithSize(bytes, 65000, 64000)).value(),
              (ImageShape{64000, 65000, channels}));
  }
  EXPECT_FALSE(ShapeOfJpeg("\xff\xd8\xff").ok());
}

TEST(JpegTest, OtherFormatsAreNamedAsSuch) {
  EXPECT_THAT(std::string(DecodeImage("GIF89a").status().message()),
              HasSubstr("neither a PNG nor a JPEG: 6 bytes"));
  EXPECT_EQ(DecodeJpeg("").status().code(), absl::StatusCode::kInvalidArgument);
  const Image8 image = DrawnPicture("noise", 1, 4, 5, 3);
  const auto png = DecodeImage(EncodePng(image));
  ASSERT_TRUE(png.ok()) << png.status();
  EXPECT_EQ(*png, image);
}

}  // namespace
}  // namespace oxbow::io
