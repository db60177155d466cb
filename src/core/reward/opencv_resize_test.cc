// SPDX-License-Identifier: Apache-2.0
#include "core/reward/opencv_resize.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/golden/reward_golden.h"

namespace oxbow::reward {
namespace {

// Promise: Rewards are those of their projects.
TEST(OpencvResizeTest, BytesAreThoseOfOpencv) {
  const auto golden = nlohmann::json::parse(*ReadFile(RewardGolden("opencv_resize.json")));
  EXPECT_GE(golden["cases"].size(), 200u);
  for (const auto& item : golden["cases"]) {
    const Image8 image =
        DrawnPicture(item["kind"], item["seed"], item["width"], item["height"], item["channels"]);
    const Image8 resized = ResizeAsOpencv(image, item["to_width"], item["to_height"]);
    EXPECT_EQ(DigestOf(resized), item["sha256"]) << item;
  }
}

TEST(OpencvResizeTest, OneColourStaysThatColourAtAnySize) {
  for (const int value : {0, 1, 127, 254, 255}) {
    const Image8 image{9, 14, 1, std::vector<uint8_t>(9 * 14, static_cast<uint8_t>(value))};
    for (const auto& [width, height] : {std::pair(1, 1), std::pair(4, 40), std::pair(31, 2)}) {
      const Image8 resized = ResizeAsOpencv(image, width, height);
      EXPECT_EQ(resized.pixels, std::vector<uint8_t>(static_cast<size_t>(width) * height,
                                                     static_cast<uint8_t>(value)));
    }
  }
}

}  // namespace
}  // namespace oxbow::reward
