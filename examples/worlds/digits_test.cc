// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/digits.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/file.h"

namespace oxbow::worlds {
namespace {

TEST(DigitsTest, GlyphsDifferInManyPixelsWhateverTheirOffsets) {
  for (int a = 0; a < 10; ++a) {
    for (int b = 0; b < a; ++b) {
      for (int offsets = 0; offsets < 4; ++offsets) {
        int different = 0;
        for (int row = 0; row < kImageHeight; ++row) {
          for (int column = 0; column < kGlyphWidth; ++column) {
            different +=
                GlyphWhite(a, offsets / 2, row, column) != GlyphWhite(b, offsets % 2, row, column);
          }
        }
        EXPECT_GE(different, 9) << a << " and " << b;
      }
    }
  }
}

TEST(DigitsTest, ImageLooksAsDrawn) {
  const auto image = RenderDigits({1, 0, 7}, /*offset=*/1);
  std::string drawn;
  for (int i = 0; i < kImagePixels; ++i) {
    ASSERT_TRUE(image[i] == 1.0F || image[i] == -1.0F);
    drawn += image[i] > 0 ? '#' : '.';
    if ((i + 1) % kImageWidth == 0) drawn += '\n';
  }
  EXPECT_EQ(drawn,
            "....................\n"
            "...#....###..#####..\n"
            "..##...#...#.....#..\n"
            "...#...#...#....#...\n"
            "...#...#...#...#....\n"
            "...#...#...#..#.....\n"
            "...#...#...#..#.....\n"
            ".#####..###...#.....\n");
}

TEST(DigitsTest, PromptOfEveryNumberRoundTrips) {
  for (int number = 0; number < 1000; ++number) {
    const Digits digits = DigitsOf(number);
    EXPECT_EQ(NumberOf(digits), number);
    const absl::StatusOr<Digits> parsed = ParseDigitsPrompt(absl::StrFormat("text %03d", number));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, digits);
  }
}

TEST(DigitsTest, OtherTextIsNoPrompt) {
  for (const char* text : {"", "text", "text 47", "text 4733", "text 4a3", "Text 473", "text  473",
                           "text 473 ", "a cat", "text -12"}) {
    EXPECT_EQ(ParseDigitsPrompt(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(DigitsTest, ShippedPromptFilesSplitTheNumbers) {
  std::array<int, 1000> seen = {};
  for (const char* name : {"eval", "tune", "train"}) {
    const auto text =
        ReadFile(absl::StrCat(OXBOW_SOURCE_DIR "/configs/prompts/digits_", name, ".txt"));
    ASSERT_TRUE(text.ok()) << text.status();
    const std::vector<std::string> lines = absl::StrSplit(*text, '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      const auto digits = ParseDigitsPrompt(line);
      ASSERT_TRUE(digits.ok()) << digits.status();
      ++seen[NumberOf(*digits)];
    }
  }
  for (int number = 0; number < 1000; ++number) EXPECT_EQ(seen[number], 1) << number;
}

}  // namespace
}  // namespace oxbow::worlds
