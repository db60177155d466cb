// SPDX-License-Identifier: Apache-2.0
// Numbers that describe held-out pictures, and their distance from the base model's pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/philox.h"
#include "base/statistics.h"
#include "core/reward/picture_statistics.h"
#include "io/image.h"
#include "services/learner/evaluation/held_out_pictures.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {
namespace {

using ::testing::ElementsAre;
using ::testing::Key;

v1::RewardConfig Rewards(const std::string& term, const std::string& observed = "") {
  v1::RewardConfig reward;
  reward.add_terms()->set_name(term);
  if (!observed.empty()) reward.add_observed(observed);
  return reward;
}

// Two halves of colours that depend on the motive, with noise of so many levels.
Image8 Picture(uint32_t motive, int width, int height, uint32_t levels = 1) {
  RandomStream random({.seed = 3, .group = motive});
  uint8_t left[3], right[3];
  for (int c = 0; c < 3; ++c) {
    left[c] = static_cast<uint8_t>(40 + random.NextBelow(140));
    right[c] = static_cast<uint8_t>(40 + random.NextBelow(140));
  }
  Image8 image{width, height, 3, {}};
  for (int i = 0; i < 3 * width * height; ++i) {
    const uint8_t half = i / 3 % width < width / 2 ? left[i % 3] : right[i % 3];
    image.pixels.push_back(static_cast<uint8_t>(half + random.NextBelow(levels)));
  }
  return image;
}

TEST(PictureNumbersTest, GreyIsDustWhereTheTaskOfTheRewardsSaysSo) {
  const Pictures pictures = {{Image8{2, 1, 1, {0, 128}}}, {Image8{2, 1, 1, {255, 51}}}};
  std::map<std::string, double> metrics;
  for (const v1::RewardConfig& reward :
       {Rewards("digits_ocr"), Rewards("ocr", "plates_reader"), Rewards("clip_ocr")}) {
    metrics.clear();
    AddPictureNumbers(reward, pictures, metrics);
    EXPECT_THAT(metrics, ElementsAre(Key("eval/speckle_mean")));
    EXPECT_NEAR(metrics.at("eval/speckle_mean"), (254. / 255 + 0.4) / 4, 1e-12);
  }
  metrics.clear();
  AddPictureNumbers(Rewards("ocr", "pickscore"), pictures, metrics);
  EXPECT_THAT(metrics, ElementsAre(Key("eval/fine_detail"), Key("eval/fine_detail_std"),
                                   Key("eval/saturated_share"), Key("eval/saturated_share_std"),
                                   Key("eval/sharpness"), Key("eval/sharpness_std")));
  EXPECT_EQ(metrics.at("eval/saturated_share"), 0.5);
  EXPECT_EQ(metrics.at("eval/saturated_share_std"), 0);
}

TEST(PictureNumbersTest, OfAVideoFourFramesCount) {
  std::vector<Image8> video;
  for (uint32_t i = 0; i < 17; ++i) video.push_back(Picture(i, 24, 16, 30));
  std::map<std::string, double> metrics;
  AddPictureNumbers(Rewards("pickscore"), {video, {Picture(5, 24, 16)}}, metrics);
  double sum = 0;
  for (const size_t frame : {0, 4, 8, 12}) sum += reward::FineDetail(video[frame]);
  const double still = reward::FineDetail(Picture(5, 24, 16));
  EXPECT_DOUBLE_EQ(metrics.at("eval/fine_detail"), (sum / 4 + still) / 2);
  EXPECT_DOUBLE_EQ(metrics.at("eval/fine_detail_std"), std::abs(sum / 4 - still) / 2);
}

class BasePicturesTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kCount = 20;

  // Small pictures of motives from `first` on.
  static std::vector<Image8> Small(uint32_t first, uint32_t levels = 1) {
    Pictures pictures;
    for (uint32_t i = 0; i < kCount; ++i) pictures.push_back({Picture(first + i, 48, 64, levels)});
    return SmallPictures(pictures);
  }

  const testing::ScopedDirectory run_;
  const std::vector<std::string> prompts_{kCount, "a prompt"};
};

TEST_F(BasePicturesTest, TheDistanceIsInUnitsOfThatOfTwoPrompts) {
  BasePictures base(run_.path());
  EXPECT_EQ(base.DistanceAt(10, prompts_, Small(0)), std::nullopt) << "step 0 was not evaluated";
  EXPECT_EQ(base.DistanceAt(0, prompts_, Small(0)), 0);
  const double noisy = base.DistanceAt(10, prompts_, Small(0, 40)).value();
  EXPECT_GT(noisy, 0);
  EXPECT_LT(noisy, 0.6);
  EXPECT_NEAR(base.DistanceAt(20, prompts_, Small(500)).value(), 1, 0.3);
  BasePictures resumed(run_.path());
  EXPECT_EQ(resumed.DistanceAt(10, prompts_, Small(0, 40)), noisy);
}

TEST_F(BasePicturesTest, OtherPromptsHaveNothingToBeComparedWith) {
  BasePictures base(run_.path());
  EXPECT_EQ(base.DistanceAt(0, prompts_, Small(0)), 0);
  std::vector<std::string> others = prompts_;
  others.back() = "another";
  EXPECT_EQ(base.DistanceAt(10, others, Small(0)), std::nullopt);
  EXPECT_EQ(base.DistanceAt(20, prompts_, Small(0)), 0) << "they are in the run's directory";
  EXPECT_EQ(base.DistanceAt(30, prompts_, {}), std::nullopt);
  std::vector<Image8> alike(kCount, Image8{kSmallSide, kSmallSide, 1, {}});
  for (Image8& image : alike) image.pixels.assign(kSmallSide * kSmallSide, 9);
  EXPECT_EQ(base.DistanceAt(0, others, alike), std::nullopt) << "of no size to speak of";
}

// The file that docs/formats.md describes: picture 17 is the second of the second row.
TEST_F(BasePicturesTest, ARunsDirectoryThatWasMovedAwayIsNotMadeAgain) {
  const std::filesystem::path gone = run_.path() / "gone";
  EXPECT_EQ(BasePictures(gone).DistanceAt(0, prompts_, Small(0)), 0);
  EXPECT_FALSE(std::filesystem::exists(gone));
}

TEST_F(BasePicturesTest, TheFileIsAsItsFormatSays) {
  BasePictures base(run_.path());
  const std::vector<Image8> small = Small(0);
  ASSERT_EQ(base.DistanceAt(0, {"123456789"}, small), 0);
  const auto bytes = ReadFile(run_.path() / "samples" / "base_a8dab577.png");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto whole = io::DecodePng(*bytes);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(whole->width, 512);
  ASSERT_EQ(whole->height, 64);
  for (int c = 0; c < 3; ++c) {
    EXPECT_EQ(whole->pixels[static_cast<size_t>(((32 + 5) * 512 + 32 + 7) * 3 + c)],
              small[17].pixels[static_cast<size_t>((5 * 32 + 7) * 3 + c)]);
  }
}

}  // namespace
}  // namespace oxbow::learner
