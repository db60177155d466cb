// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/digits_reading.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/philox.h"

namespace oxbow::worlds {
namespace {

using Pixels = std::vector<uint8_t>;

Pixels ImageOf(const Digits& digits, int offset) {
  Pixels pixels;
  for (const float x : RenderDigits(digits, offset)) pixels.push_back(x > 0 ? 255 : 0);
  return pixels;
}

Digits DigitsRead(const Reading& reading) {
  return {reading.cells[0].digit, reading.cells[1].digit, reading.cells[2].digit};
}

void FillCell(Pixels& pixels, int cell, uint8_t value) {
  for (int row = 0; row < kImageHeight; ++row) {
    for (int column = 0; column < kGlyphWidth; ++column) {
      pixels[row * kImageWidth + kCellColumns[cell] + column] = value;
    }
  }
}

TEST(DigitsReadingTest, EveryNumberReadsBackAtBothOffsets) {
  for (int number = 0; number < 1000; ++number) {
    for (int offset = 0; offset < kRowOffsets; ++offset) {
      const Reading reading = ReadDigits(ImageOf(DigitsOf(number), offset));
      ASSERT_EQ(DigitsRead(reading), DigitsOf(number));
      ASSERT_EQ(reading.offset, offset);
      ASSERT_EQ(EditDistance(reading, DigitsOf(number)), 0);
      for (const CellReading& cell : reading.cells) ASSERT_EQ(cell.error, 0);
    }
  }
}

// Any two glyphs are 9 pixels apart, so grey noise of up to 30 levels of 255 per pixel (error .118)
// can neither swap nor hide a digit.
TEST(DigitsReadingTest, GreyDustIsTolerated) {
  const uint64_t seed = 20;
  RandomStream random({.seed = seed, .step = kTaskData});
  for (int trial = 0; trial < 300; ++trial) {
    const Digits digits = DigitsOf(static_cast<int>(random.NextBelow(1000)));
    Pixels pixels = ImageOf(digits, trial % 2);
    for (uint8_t& pixel : pixels) {
      const int dust = static_cast<int>(random.NextBelow(31));
      pixel = static_cast<uint8_t>(pixel == 0 ? dust : 255 - dust);
    }
    const Reading reading = ReadDigits(pixels);
    ASSERT_EQ(DigitsRead(reading), digits) << "seed " << seed << ", trial " << trial;
    ASSERT_EQ(reading.offset, trial % 2);
    ASSERT_GT(Speckle(pixels), 0.05);
  }
}

TEST(DigitsReadingTest, ErrorOverTheLimitIsUnreadable) {
  Pixels pixels = ImageOf({8, 8, 8}, 0);
  FillCell(pixels, 1, 128);
  EXPECT_EQ(DigitsRead(ReadDigits(pixels)), (Digits{8, kUnreadable, 8}));
  FillCell(pixels, 2, 0);
  EXPECT_EQ(DigitsRead(ReadDigits(pixels)), (Digits{8, kUnreadable, kUnreadable}));
  EXPECT_EQ(EditDistance(ReadDigits(pixels), {8, 8, 8}), 2);
}

// Six inverted pixels are an error of exactly .15, still readable; one grey level more is not.
TEST(DigitsReadingTest, LimitIsInclusive) {
  Pixels pixels = ImageOf({4, 4, 4}, 0);
  for (int i = 0; i < 6; ++i) {
    uint8_t& pixel = pixels[(i + 1) * kImageWidth + kCellColumns[0] + 2];
    pixel = static_cast<uint8_t>(255 - pixel);
  }
  const CellReading at_limit = ReadDigits(pixels).cells[0];
  EXPECT_EQ(at_limit.digit, 4);
  EXPECT_DOUBLE_EQ(at_limit.error, kReadableErrorMax);
  pixels[7 * kImageWidth + kCellColumns[0]] = 1;
  EXPECT_EQ(ReadDigits(pixels).cells[0].digit, kUnreadable);
}

TEST(DigitsReadingTest, EditDistanceObeysItsLaws) {
  const auto distance = [](int read, int wanted) {
    return EditDistance(ReadDigits(ImageOf(DigitsOf(read), 0)), DigitsOf(wanted));
  };
  EXPECT_EQ(distance(123, 123), 0);
  EXPECT_EQ(distance(123, 124), 1);
  EXPECT_EQ(distance(123, 321), 2);
  EXPECT_EQ(distance(123, 231), 2);  // Delete the 1, append it.
  EXPECT_EQ(distance(123, 456), 3);
  RandomStream random({.seed = 3, .step = kTaskData});
  for (int trial = 0; trial < 200; ++trial) {
    const int a = static_cast<int>(random.NextBelow(1000));
    const int b = static_cast<int>(random.NextBelow(1000));
    const int c = static_cast<int>(random.NextBelow(1000));
    int replaced = 0;
    for (int i = 0; i < kDigitCount; ++i) replaced += DigitsOf(a)[i] != DigitsOf(b)[i];
    EXPECT_EQ(distance(a, b), distance(b, a));
    EXPECT_EQ(distance(a, b) == 0, a == b);
    EXPECT_LE(distance(a, b), replaced);
    EXPECT_LE(distance(a, c), distance(a, b) + distance(b, c));
  }
}

TEST(DigitsReadingTest, SpeckleIsTheMeanDistanceFromBlackAndWhite) {
  EXPECT_EQ(Speckle(ImageOf({4, 7, 3}, 1)), 0);
  EXPECT_NEAR(Speckle(Pixels(kImagePixels, 128)), 1, 0.005);
  EXPECT_DOUBLE_EQ(Speckle(Pixels{0, 255, 51}), 0.4 / 3);  // 51 is x = -.6.
}

TEST(DigitsReadingTest, RowShareCountsTheLessUsedRow) {
  RowShare share;
  EXPECT_EQ(share.minority(), 0);
  for (int i = 0; i < 4; ++i) share.Add(ReadDigits(ImageOf({1, 2, 3}, i == 2)));
  EXPECT_DOUBLE_EQ(share.minority(), 0.25);
}

TEST(DigitsReportTest, CountsWhatImagesShow) {
  const auto pixels = [](int number, int offset) { return ImageOf(DigitsOf(number), offset); };
  DigitsCounter counter;
  const auto add = [&](const Pixels& image) {
    counter.Add(DigitsOf(473), ReadDigits(image), Speckle(image));
  };
  EXPECT_EQ(counter.Report().images, 0);
  add(pixels(473, 0));
  add(pixels(479, 0));
  add(pixels(279, 1));
  add(Pixels(kImagePixels, 128));
  const DigitsReport report = counter.Report();
  EXPECT_EQ(report.images, 4);
  EXPECT_DOUBLE_EQ(report.reward, (1 + 2.0 / 3 + 1.0 / 3 + 0) / 4);
  EXPECT_DOUBLE_EQ(report.strict, 0.25);
  EXPECT_DOUBLE_EQ(report.unreadable, 0.25);
  EXPECT_DOUBLE_EQ(report.minority_row_share, 0.25);
  EXPECT_EQ(report.digit_accuracy, (std::array<double, 3>{0.5, 0.75, 0.25}));
  EXPECT_NEAR(report.speckle, 0.25, 0.002);
  EXPECT_NEAR(report.reward_stderr, std::sqrt(5.0 / 36 / 4), 1e-12);
}

}  // namespace
}  // namespace oxbow::worlds
