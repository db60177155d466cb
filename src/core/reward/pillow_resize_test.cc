// SPDX-License-Identifier: Apache-2.0
#include "core/reward/pillow_resize.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/golden/reward_golden.h"

namespace oxbow::reward {
namespace {

constexpr ResizeKernel kKernels[] = {ResizeKernel::kBilinear, ResizeKernel::kBicubic};

// Promise: Rewards are those of their projects.
TEST(PillowResizeTest, BytesAreThoseOfPillow) {
  const auto golden = nlohmann::json::parse(*ReadFile(RewardGolden("pillow_resize.json")));
  const auto& cases = golden["cases"];
  EXPECT_GE(cases.size(), 200u);
  size_t whole = 0;
  for (const auto& item : cases) {
    const Image8 image =
        DrawnPicture(item["kind"], item["seed"], item["width"], item["height"], item["channels"]);
    const auto kernel = item["kernel"] == "bicubic" ? kKernels[1] : kKernels[0];
    const Image8 resized = ResizeAsPillow(image, item["to_width"], item["to_height"], kernel);
    EXPECT_EQ(DigestOf(resized), item["sha256"]) << item;
    if (!item.contains("pixels")) continue;
    EXPECT_EQ(resized.pixels, item["pixels"].get<std::vector<uint8_t>>()) << item;
    ++whole;
  }
  EXPECT_GE(whole, 1u);
}

TEST(PillowResizeTest, TheSameSizeIsTheSameImage) {
  for (const ResizeKernel kernel : kKernels) {
    for (const auto& [width, height] : {std::pair(1, 1), std::pair(7, 3), std::pair(64, 33)}) {
      for (const int channels : {1, 3}) {
        const Image8 image = DrawnPicture("noise", 5, width, height, channels);
        EXPECT_EQ(ResizeAsPillow(image, width, height, kernel), image);
      }
    }
  }
}

TEST(PillowResizeTest, OneColourStaysThatColourAtAnySize) {
  for (const ResizeKernel kernel : kKernels) {
    for (const int value : {0, 1, 127, 254, 255}) {
      const Image8 image{9, 14, 1, std::vector<uint8_t>(9 * 14, static_cast<uint8_t>(value))};
      for (const auto& [width, height] : {std::pair(1, 1), std::pair(4, 40), std::pair(31, 2)}) {
        const Image8 resized = ResizeAsPillow(image, width, height, kernel);
        EXPECT_EQ(resized.pixels, std::vector<uint8_t>(static_cast<size_t>(width) * height,
                                                       static_cast<uint8_t>(value)));
      }
    }
  }
}

Image8 Mirrored(const Image8& image) {
  Image8 mirrored = image;
  const auto width = static_cast<size_t>(image.width), depth = static_cast<size_t>(image.channels);
  for (size_t i = 0; i < image.pixels.size() / depth; ++i) {
    const size_t opposite = i / width * width + (width - 1 - i % width);
    for (size_t c = 0; c < depth; ++c) {
      mirrored.pixels[opposite * depth + c] = image.pixels[i * depth + c];
    }
  }
  return mirrored;
}

// Bytes at half may round differently after mirroring, so this law holds within one.
TEST(PillowResizeTest, AMirroredImageResizesToTheMirroredImage) {
  const Image8 image = DrawnPicture("noise", 8, 37, 21, 3);
  for (const ResizeKernel kernel : kKernels) {
    const Image8 one = Mirrored(ResizeAsPillow(image, 16, 50, kernel));
    const Image8 other = ResizeAsPillow(Mirrored(image), 16, 50, kernel);
    for (size_t i = 0; i < one.pixels.size(); ++i) {
      EXPECT_NEAR(one.pixels[i], other.pixels[i], 1) << i;
    }
  }
}

TEST(PillowResizeTest, ChannelsDoNotMix) {
  Image8 image = DrawnPicture("noise", 2, 30, 20, 3);
  const Image8 before = ResizeAsPillow(image, 11, 33, ResizeKernel::kBicubic);
  for (size_t i = 1; i < image.pixels.size(); i += 3) image.pixels[i] = 77;
  const Image8 after = ResizeAsPillow(image, 11, 33, ResizeKernel::kBicubic);
  for (size_t i = 0; i < before.pixels.size(); ++i) {
    if (i % 3 == 1) {
      EXPECT_EQ(after.pixels[i], 77);
    } else {
      EXPECT_EQ(after.pixels[i], before.pixels[i]);
    }
  }
}

TEST(PillowResizeDeathTest, RefusesWhatIsNoImageOrHasNoSize) {
  const Image8 image = DrawnPicture("noise", 1, 4, 4, 1);
  EXPECT_DEATH(ResizeAsPillow(image, 0, 4, ResizeKernel::kBicubic), "4x4 to 0x4");
  EXPECT_DEATH(ResizeAsPillow(image, 4, kResizeSideMax + 1, ResizeKernel::kBicubic), "to 4x32769");
  EXPECT_DEATH(ResizeAsPillow({4, 4, 1, {1, 2}}, 2, 2, ResizeKernel::kBicubic), "2 bytes");
}

}  // namespace
}  // namespace oxbow::reward
