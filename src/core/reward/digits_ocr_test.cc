#include "core/reward/digits_ocr.h"

#include <gtest/gtest.h>

#include "core/reward/scorer_table.h"
#include "core/task/digits.h"

namespace oxbow::reward {
namespace {

Image ImageOf(int number) {
  Image image{.width = 20, .height = 8, .channels = 1, .pixels = ""};
  for (const float x : task::RenderDigits(task::DigitsOf(number), 1)) {
    image.pixels += static_cast<char>(x > 0 ? 255 : 0);
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
    EXPECT_DOUBLE_EQ(ocr->Score("text 473", "", ImageOf(c.drawn)).value(), c.reward) << c.drawn;
    EXPECT_DOUBLE_EQ(strict->Score("text 473", "", ImageOf(c.drawn)).value(), c.strict);
  }
}

TEST(DigitsOcrTest, RowSaysWhereTheImageStandsWhateverItShows) {
  Image image = ImageOf(808);  // Drawn in row 1.
  EXPECT_EQ(MakeDigitsRow()->Score("text 473", "", image).value(), 1);
  image.pixels = image.pixels.substr(20) + std::string(20, '\0');
  EXPECT_EQ(MakeDigitsRow()->Score("text 473", "", image).value(), 0);
}

TEST(DigitsOcrTest, WhatDoesNotFitIsAnErrorAndNoScore) {
  for (const std::string& name : ScorerNames()) {
    const auto scorer = MakeScorer(name);
    ASSERT_TRUE(scorer.ok());
    EXPECT_EQ((*scorer)->name(), name);
    const auto code = [&](const char* prompt, const Image& image) {
      return (*scorer)->Score(prompt, "{}", image).status().code();
    };
    EXPECT_EQ(code("a red cube", ImageOf(1)), absl::StatusCode::kInvalidArgument);
    Image transposed = ImageOf(1);
    std::swap(transposed.width, transposed.height);
    EXPECT_EQ(code("text 001", transposed), absl::StatusCode::kInvalidArgument);
    Image truncated = ImageOf(1);
    truncated.pixels.pop_back();
    EXPECT_EQ(code("text 001", truncated), absl::StatusCode::kInvalidArgument);
  }
}

TEST(DigitsOcrTest, UnknownScorerNamesTheKnownOnes) {
  const absl::Status status = MakeScorer("digits_orc").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("digits_ocr, digits_strict"), std::string::npos);
  EXPECT_NE(status.message().find("digits_orc"), std::string::npos);
}

}  // namespace
}  // namespace oxbow::reward
