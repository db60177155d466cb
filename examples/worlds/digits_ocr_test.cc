// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/digits_ocr.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "examples/worlds/digits.h"

namespace oxbow::worlds {
namespace {

using reward::ScoreOne;

Image8 ImageOf(int number) {
  Image8 image{.width = 20, .height = 8, .channels = 1, .pixels = {}};
  for (const float x : RenderDigits(DigitsOf(number), 1)) {
    image.pixels.push_back(x > 0 ? 255 : 0);
  }
  return image;
}

TEST(DigitsOcrTest, RewardFallsByAThirdPerEdit) {
  const auto ocr = MakeDigitsOcr();
  const auto strict = MakeDigitsStrict();
  const struct {
    int drawn;
    double reward, strict;
  } cases[] = {{473, 1, 1}, {479, 2.0 / 3, 0}, {737, 1.0 / 3, 0}, {808, 0, 0}};
  for (const auto& c : cases) {
    EXPECT_DOUBLE_EQ(ScoreOne(*ocr, "text 473", "", ImageOf(c.drawn))->value, c.reward) << c.drawn;
    EXPECT_DOUBLE_EQ(ScoreOne(*strict, "text 473", "", ImageOf(c.drawn))->value, c.strict);
  }
}

TEST(DigitsOcrTest, RowSaysWhereTheImageStandsWhateverItShows) {
  Image8 image = ImageOf(808);  // Drawn in row 1.
  const auto row = MakeDigitsRow();
  EXPECT_EQ(ScoreOne(*row, "text 473", "", image)->value, 1);
  image.pixels.erase(image.pixels.begin(), image.pixels.begin() + 20);
  image.pixels.resize(160);
  EXPECT_EQ(ScoreOne(*row, "text 473", "", image)->value, 0);
}

Image8 InRowZero(int number) {
  Image8 image = ImageOf(number);
  image.pixels.erase(image.pixels.begin(), image.pixels.begin() + 20);
  image.pixels.resize(160);
  return image;
}

TEST(DigitsOcrTest, AGradedPromptSaysHowManyDigitsMustBeRightInRowZero) {
  const auto graded = MakeDigitsGraded();
  const auto score = [&](int drawn, int wanted) {
    return ScoreOne(*graded, "text 473", "{\"digits\":" + std::to_string(wanted) + "}",
                    InRowZero(drawn))
        ->value;
  };
  const std::map<int, int> right = {{473, 3}, {479, 2}, {879, 1}, {808, 0}, {737, 0}};
  for (const auto& [drawn, digits] : right) {
    for (int wanted = 0; wanted <= 3; ++wanted) {
      EXPECT_EQ(score(drawn, wanted), digits >= wanted ? 1 : 0) << drawn << " of " << wanted;
    }
  }
  EXPECT_EQ(ScoreOne(*graded, "text 473", R"({"digits":0})", ImageOf(473))->value, 0) << "row 1";
  EXPECT_EQ(
      ScoreOne(
          *graded, "text 473", R"({"digits":0})",
          Image8{.width = 20, .height = 8, .channels = 1, .pixels = std::vector<uint8_t>(160, 128)})
          ->value,
      0)
      << "nothing to read";
  for (const char* metadata : {"", "{}", R"({"digits":4})", R"({"digits":-1})", R"({"digits":"1"})",
                               "[", R"({"digits":1.5})"}) {
    EXPECT_EQ(ScoreOne(*graded, "text 473", metadata, InRowZero(473)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << metadata;
  }
}

}  // namespace
}  // namespace oxbow::worlds
