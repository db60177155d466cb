// SPDX-License-Identifier: Apache-2.0
#include "core/reward/clip_crop.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/golden/reward_golden.h"

namespace oxbow::reward {
namespace {

// Promise: Rewards are those of their projects.
TEST(ClipCropTest, BytesAreThoseOfTheImageProcessor) {
  const auto golden = nlohmann::json::parse(*ReadFile(RewardGolden("clip_crop.json")));
  EXPECT_GE(golden["cases"].size(), 40u);
  for (const auto& item : golden["cases"]) {
    const Image8 image =
        DrawnPicture(item["kind"], item["seed"], item["width"], item["height"], item["channels"]);
    ASSERT_TRUE(CanClipCrop({image.width, image.height}, item["side"])) << item;
    EXPECT_EQ(DigestOf(ClipCrop(image, item["side"])), item["sha256"]) << item;
  }
}

TEST(ClipCropTest, TheShorterSideIsExactAndTheLongerRoundedDown) {
  EXPECT_EQ(ShorterSideTo({512, 512}, 224), (ImageSize{224, 224}));
  EXPECT_EQ(ShorterSideTo({100, 300}, 10), (ImageSize{10, 30}));
  EXPECT_EQ(ShorterSideTo({30, 20}, 7), (ImageSize{10, 7}));  // 10.5
  EXPECT_EQ(ShorterSideTo({1, 3}, 224), (ImageSize{224, 672}));
}

TEST(ClipCropTest, AnImageOfTheSizeIsCutUnchanged) {
  const Image8 image = DrawnPicture("noise", 3, 16, 16, 3);
  EXPECT_EQ(ClipCrop(image, 16), image);
}

// Columns 0, 1, 2, ... of an image that is one row high: the first that is kept is the border.
TEST(ClipCropTest, TorchvisionsBorderIsRoundedToTheEvenNeighbour) {
  const auto left = [](int width, CropBorder border) {
    Image8 image{width, 1, 1, {}};
    for (int x = 0; x < width; ++x) image.pixels.push_back(static_cast<uint8_t>(x));
    return static_cast<int>(ClipCrop(image, 1, border).pixels[0]);
  };
  const int down[] = {0, 0, 1, 1, 2, 2, 3, 3}, even[] = {0, 0, 1, 2, 2, 2, 3, 4};
  for (int difference = 0; difference < 8; ++difference) {
    EXPECT_EQ(left(1 + difference, CropBorder::kDown), down[difference]) << difference;
    EXPECT_EQ(left(1 + difference, CropBorder::kHalfEven), even[difference]) << difference;
  }
}

TEST(ClipCropTest, GreyIsThreeEqualChannels) {
  const Image8 grey = DrawnPicture("scene", 3, 20, 31, 1);
  const Image8 cut = ClipCrop(grey, 8);
  ASSERT_EQ(cut.pixels.size(), 8u * 8 * 3);
  for (size_t i = 0; i < cut.pixels.size(); i += 3) {
    EXPECT_EQ(cut.pixels[i], cut.pixels[i + 1]);
    EXPECT_EQ(cut.pixels[i], cut.pixels[i + 2]);
  }
}

TEST(ClipCropTest, AStripThatWouldBecomeAGiantIsNotTaken) {
  EXPECT_TRUE(CanClipCrop({1, 100}, 224));
  EXPECT_FALSE(CanClipCrop({1, 200}, 224));
  EXPECT_FALSE(CanClipCrop({0, 10}, 224));
  EXPECT_FALSE(CanClipCrop({1, 1 << 30}, 224));
}

}  // namespace
}  // namespace oxbow::reward
