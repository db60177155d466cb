#include "tasks/digits_ocr.h"

#include <gtest/gtest.h>

#include "tasks/digits.h"

namespace oxbow::reward {
namespace {

Image8 ImageOf(int number) {
  Image8 image{.width = 20, .height = 8, .channels = 1, .pixels = {}};
  for (const float x : tasks::RenderDigits(tasks::DigitsOf(number), 1)) {
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

}  // namespace
}  // namespace oxbow::reward
