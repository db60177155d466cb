// SPDX-License-Identifier: Apache-2.0
// Rewards of the picture alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "io/image.h"
#include "rewards/picture_guards.h"
#include "tests/golden/reward_golden.h"

namespace oxbow::rewards {
namespace {

using reward::DrawnPicture;
using reward::Item;
using reward::Scorer;

std::vector<std::unique_ptr<Scorer>> All() {
  std::vector<std::unique_ptr<Scorer>> all;
  all.push_back(MakeBrightness());
  all.push_back(MakeEdgeDensity());
  all.push_back(MakeColourEntropy());
  all.push_back(MakeJpegSize("").value());
  all.push_back(MakeJpegSize("compressibility").value());
  return all;
}

std::vector<Image8> Pictures() {
  std::vector<Image8> pictures;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    pictures.push_back(DrawnPicture(seed % 2 == 0 ? "noise" : "scene", seed, 10 + seed * 3,
                                    40 - seed * 2, seed % 3 == 0 ? 1 : 3));
  }
  return pictures;
}

double ValueOf(Scorer& scorer, const Image8& image) {
  const auto score = ScoreOne(scorer, "anything", "", image);
  EXPECT_TRUE(score.ok()) << score.status();
  return score.ok() ? score->value : 0;
}

// Promise: Batches change no score.
TEST(PictureRewardsTest, ABatchHasTheScoresOfItsItemsAloneInAnyOrder) {
  std::vector<Image8> pictures = Pictures();
  for (const auto& scorer : All()) {
    for (int order = 0; order < 2; ++order) {
      std::vector<Item> items;
      for (const Image8& image : pictures) items.push_back({.prompt = "x", .frames = {&image, 1}});
      const auto scores = scorer->ScoreBatch(items);
      ASSERT_EQ(scores.size(), items.size());
      for (size_t i = 0; i < scores.size(); ++i) {
        ASSERT_TRUE(scores[i].ok()) << scores[i].status();
        EXPECT_EQ(scores[i]->value, ValueOf(*scorer, pictures[i])) << scorer->facts().name;
        EXPECT_GE(scores[i]->value, scorer->facts().value_min);
        EXPECT_LE(scores[i]->value, scorer->facts().value_max);
      }
      std::reverse(pictures.begin(), pictures.end());
    }
  }
}

TEST(PictureRewardsTest, JpegSizeIsTheLengthOfTheFileAndCompressibilityAFiveHundredthBelowZero) {
  const auto size = MakeJpegSize("size").value();
  const auto compressibility = MakeJpegSize("compressibility").value();
  for (const Image8& image : Pictures()) {
    const auto bytes = static_cast<double>(io::EncodeJpeg(image, 95).size());
    EXPECT_DOUBLE_EQ(ValueOf(*size, image), bytes / 1000);
    EXPECT_DOUBLE_EQ(ValueOf(*compressibility, image), -bytes / 1000 / 500);
  }
  EXPECT_NE(size->facts().identity, compressibility->facts().identity);
  EXPECT_EQ(MakeJpegSize("official").status().message(),
            "variant is size or compressibility, got official");
}

TEST(PictureRewardsTest, WhatIsPaintedWhiteIsBrightFlatAndOfOneColour) {
  const Image8 white{16, 16, 3, std::vector<uint8_t>(16 * 16 * 3, 255)};
  EXPECT_NEAR(ValueOf(*MakeBrightness(), white), 1, 1e-12);
  EXPECT_EQ(ValueOf(*MakeEdgeDensity(), white), 0);
  EXPECT_EQ(ValueOf(*MakeColourEntropy(), white), 0);
}

TEST(PictureRewardsTest, ADamagedPictureCostsOnlyItsOwnScore) {
  const Image8 sound = DrawnPicture("scene", 1, 20, 10, 3);
  const Image8 none, cut{20, 10, 3, {1, 2}}, four{2, 2, 4, std::vector<uint8_t>(16)},
      strip{65501, 1, 1, std::vector<uint8_t>(65501)};
  for (const auto& scorer : All()) {
    for (const Image8* const bad : {&none, &cut, &four, &strip}) {
      const std::vector<Item> items = {{.frames = {bad, 1}}, {.frames = {&sound, 1}}};
      const auto scores = scorer->ScoreBatch(items);
      EXPECT_EQ(scores[0].status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(scores[0].status().message()),
                  ::testing::HasSubstr(scorer->facts().name + " takes no such picture"));
      EXPECT_TRUE(scores[1].ok());
    }
  }
}

}  // namespace
}  // namespace oxbow::rewards
