// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/plates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/philox.h"
#include "core/reward/synthetic_task.h"
#include "examples/worlds/plates_reading.h"
#include "examples/worlds/plates_scorer.h"

namespace oxbow::worlds {
namespace {

using reward::Measure;
using reward::ScoreOne;
using reward::TaskOfPrompt;

using Pixels = std::vector<uint8_t>;

Pixels PixelsOf(int number, int offset) {
  const auto bytes = PlateBytes(DigitsOf(number), offset);
  return {bytes.begin(), bytes.end()};
}

Digits DigitsRead(const Reading& reading) {
  return {reading.cells[0].digit, reading.cells[1].digit, reading.cells[2].digit};
}

TEST(PlatesTest, PromptIsTextAndAQuotation) {
  for (int number = 0; number < 1000; ++number) {
    ASSERT_EQ(ParsePlatePrompt(absl::StrFormat("text \"%03d\"", number)).value(), DigitsOf(number));
  }
  for (const char* other : {"text 473", "text \"47\"", "text \"4733\"", "text \"47a\"",
                            "Text \"473\"", "text \"473\" ", "text \"473", ""}) {
    EXPECT_FALSE(ParsePlatePrompt(other).ok()) << other;
  }
}

TEST(PlatesTest, PromptTellsTheTaskFromDigits) {
  EXPECT_EQ(TaskOfPrompt("text \"473\"")->name(), "plates");
  EXPECT_EQ(TaskOfPrompt("text 473")->name(), "digits");
}

TEST(PlatesTest, ImageIsDarkOnWhiteAndMovesByRows) {
  const auto top = PlateBytes({4, 7, 3}, 0);
  const auto bottom = PlateBytes({4, 7, 3}, kPlateOffsets - 1);
  const int step = (kPlateOffsets - 1) * kPlateWidth;
  for (int i = 0; i + step < kPlatePixels; ++i) ASSERT_EQ(top[i], bottom[i + step]) << i;
  EXPECT_EQ(top[0], 255);
}

TEST(PlatesReadingTest, EveryNumberReadsBackAtEveryOffset) {
  for (int number = 0; number < 1000; ++number) {
    for (int offset = 0; offset < kPlateOffsets; ++offset) {
      const Pixels pixels = PixelsOf(number, offset);
      const Reading reading = ReadPlate(pixels);
      ASSERT_EQ(DigitsRead(reading), DigitsOf(number));
      ASSERT_EQ(reading.offset, offset);
      ASSERT_EQ(PlateDust(pixels), 0);
    }
  }
}

// Any two digits differ by .098, so noise of up to 24 levels of 255 (error .094 at most, .047 in
// the mean) does not hide a digit, and cannot swap two: it would have to move half of the
// difference.
TEST(PlatesReadingTest, NoiseIsTolerated) {
  const uint64_t seed = 21;
  RandomStream random({.seed = seed, .step = kTaskData});
  for (int trial = 0; trial < 300; ++trial) {
    const int number = static_cast<int>(random.NextBelow(1000));
    Pixels pixels = PixelsOf(number, trial % kPlateOffsets);
    for (uint8_t& pixel : pixels) {
      const int noise = static_cast<int>(random.NextBelow(25));
      pixel = static_cast<uint8_t>(pixel < 128 ? pixel + noise : pixel - noise);
    }
    const Reading reading = ReadPlate(pixels);
    ASSERT_EQ(DigitsRead(reading), DigitsOf(number)) << "seed " << seed << ", trial " << trial;
    ASSERT_EQ(reading.offset, trial % kPlateOffsets);
    ASSERT_NEAR(PlateDust(pixels), 12.0 / 255, 0.004);
  }
}

TEST(PlatesReadingTest, EmptyAndGreyCellsAreUnreadable) {
  Pixels pixels = PixelsOf(888, 1);
  for (int row = 0; row < kPlateHeight; ++row) {
    for (int column = 0; column < 10; ++column) {
      pixels[row * kPlateWidth + kPlateColumns[0] + column] = 255;
      pixels[row * kPlateWidth + kPlateColumns[2] + column] = 128;
    }
  }
  EXPECT_EQ(DigitsRead(ReadPlate(pixels)), (Digits{kUnreadable, 8, kUnreadable}));
}

TEST(PlatesReadingTest, TaskReportsWhatItsReaderSees) {
  const auto report = TaskOfPrompt("text \"473\"")->NewReport();
  for (const int drawn : {473, 479, 808, 473}) {
    ASSERT_TRUE(report->Add("text \"473\"", PixelsOf(drawn, drawn == 473 ? 0 : 2)).ok());
  }
  EXPECT_EQ(report->Add("text \"473\"", Pixels(160)).code(), absl::StatusCode::kFailedPrecondition);
  const std::vector<Measure> measures = report->Report();
  ASSERT_EQ(measures[1].name, "reward");
  EXPECT_NEAR(measures[1].value, (1 + 2.0 / 3 + 0 + 1) / 4, 1e-12);
  ASSERT_EQ(measures[3].name, "strict");
  EXPECT_EQ(measures[3].value, 0.5);
  EXPECT_EQ(measures[6].name, "minority_share");
  EXPECT_EQ(measures[6].value, 0) << "no image stands in the middle row";
}

TEST(PlatesScorerTest, RewardFallsByAThirdPerEdit) {
  const auto reader = MakePlatesReader();
  const auto strict = MakePlatesStrict();
  const struct {
    int drawn;
    double reward, strict;
  } cases[] = {{473, 1, 1}, {479, 2.0 / 3, 0}, {737, 1.0 / 3, 0}, {808, 0, 0}};
  for (const auto& c : cases) {
    const Image8 image{.width = 32, .height = 16, .channels = 1, .pixels = PixelsOf(c.drawn, 2)};
    const auto scored = ScoreOne(*reader, "text \"473\"", "", image);
    EXPECT_DOUBLE_EQ(scored->value, c.reward) << c.drawn;
    EXPECT_EQ(scored->note, std::to_string(c.drawn));
    EXPECT_DOUBLE_EQ(ScoreOne(*strict, "text \"473\"", "", image)->value, c.strict);
  }
}

}  // namespace
}  // namespace oxbow::worlds
